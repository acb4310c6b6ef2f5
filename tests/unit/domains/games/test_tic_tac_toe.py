"""Tic-tac-toe: its text, names of moves and lines."""

from __future__ import annotations

from tests.unit.domains.games.playing import begun, play

from paceline.domains.games import TicTacToe
from paceline.domains.games.tic_tac_toe import LINED


def test_the_last_stone_may_win() -> None:
    game = begun(TicTacToe, 1)
    play(game, 0, 0, 1, 4, 3, 2, 5, 7, 6, 8)  # the diagonal 0-4-8
    assert game.over[0]
    assert game.winner[0] == 0


def test_text_and_names_of_moves() -> None:
    game = begun(TicTacToe, 1)
    play(game, 0, 4, 0)
    assert game.text(0) == "Tic-tac-toe, X to move\n O | 1 | 2\n---+---+---\n 3 | X | 5\n---+---+---\n 6 | 7 | 8"
    assert game.move_name(0, 4) == "cell 4"
    play(game, 0, 1, 7, 6, 2, 5, 3, 8)
    assert game.text(0).startswith("Tic-tac-toe, a draw")


def test_the_table_of_lines_has_exactly_the_eight_lines() -> None:
    lines = [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {0, 3, 6}, {1, 4, 7}, {2, 5, 8}, {0, 4, 8}, {2, 4, 6}]
    for stones in range(512):
        cells = {cell for cell in range(9) if stones >> cell & 1}
        assert LINED[stones] == any(line <= cells for line in lines)

"""Connect Four: its text, names of moves and lines."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.domains.games.playing import begun, play

from paceline.domains.games import ConnectFour


def test_text_and_names_of_moves() -> None:
    game = begun(ConnectFour, 1)
    play(game, 0, 3, 3, 6)
    assert game.text(0).splitlines() == [
        "Connect Four, O to move",
        " 0 1 2 3 4 5 6",
        *[" . . . . . . ."] * 4,
        " . . . O . . .",
        " . . . X . . X",
    ]
    assert game.move_name(0, 3) == "column 3"
    play(game, 0, 3, 6, 0, 6, 0, 6)
    assert game.text(0).startswith("Connect Four, X has won")


def wins(*columns: int) -> bool:
    """Whether the last of these moves, played in turns, wins."""
    game = begun(ConnectFour, 1)
    play(game, 0, *columns)
    return bool(game.over[0])


@pytest.mark.parametrize(
    "columns",
    [
        (0, 1, 0, 1, 0, 1, 0),  # up
        (3, 3, 4, 4, 5, 5, 6),  # across
        (0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3),  # diagonally up
        (6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3),  # diagonally down
    ],
)
def test_four_in_a_line_win_and_three_do_not(columns: tuple[int, ...]) -> None:
    assert wins(*columns)
    assert not wins(*columns[:-1])


def test_a_line_does_not_run_from_the_top_of_a_column_into_the_next() -> None:
    # X has the top three cells of column 0 and the lowest of column 1, which are adjacent bits but for bit 6.
    assert not wins(0, 2, 4, 0, 6, 0, 0, 2, 0, 5, 0, 5, 1)


def test_a_full_column_is_no_longer_legal() -> None:
    game = begun(ConnectFour, 1)
    play(game, 0, 2, 2, 2, 2, 2)
    assert game.legal(np.array([0]))[0].all()
    play(game, 0, 2)
    assert np.flatnonzero(~game.legal(np.array([0]))[0]).tolist() == [2]

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline import PPO
from paceline.domains.games import GAMES
from paceline.domains.games.net_player import load_net
from paceline.domains.games.players import RandomPlayer
from paceline.domains.games.session import Move, Session
from paceline.envs.game import Game, IllegalMove


class Lowest:
    """Always plays the first legal move."""

    def choose(self, game: Game, rows: NDArray[np.intp], noise: NDArray[np.uint64]) -> NDArray[np.int64]:
        first: NDArray[np.int64] = game.legal(rows).argmax(axis=1)
        return first


def state(session: Session) -> dict[str, list[object]]:
    return {name: array.tolist() for name, array in session.game.state.items()}


def test_a_game_to_its_end() -> None:
    session = Session("tic_tac_toe", Lowest(), seat=0, seed=0)
    assert session.moves() == [Move(i, f"cell {i}") for i in range(9)]
    session.play(4)
    assert session.replies == ("cell 0",)
    assert (session.over, session.result) == (False, None)
    assert "O | 1 | 2" in session.game.text(0)
    session.play(3)
    assert session.replies == ("cell 1",)
    session.play(5)
    assert (session.over, session.result, session.moves()) == (True, "won", [])
    assert not session.replies
    assert "X has won" in session.game.text(0)


def test_the_second_player_sees_the_opponents_first_move() -> None:
    session = Session("connect_four", Lowest(), seat=1, seed=0)
    assert session.replies == ("column 0",)
    for column in (1, 2, 3):
        session.play(column)
    assert (session.result, session.replies) == ("lost", ("column 0",))


def test_a_full_board_is_a_draw() -> None:
    session = Session("tic_tac_toe", Lowest(), seat=1, seed=0)
    for cell in (1, 4, 6, 8):
        session.play(cell)
    assert session.result == "drawn"


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("seat", [0, 1])
def test_undo_restores_each_decision_and_the_dice_that_follow(game: str, seat: int) -> None:
    session = Session(game, RandomPlayer(), seat=seat, seed=11)
    begin, seen, played = state(session), [], []
    while not session.over:
        seen.append((state(session), session.replies))
        played.append(session.moves()[-1].action)
        session.play(played[-1])
    end, result = state(session), session.result
    for before, replies in reversed(seen):
        assert session.undo()
        assert (state(session), session.replies) == (before, replies)
        assert not session.over
    assert not session.undo()
    assert state(session) == begin
    for action in played:
        session.play(action)
    assert (state(session), session.result) == (end, result)


def test_an_illegal_move_changes_nothing() -> None:
    session = Session("tic_tac_toe", Lowest(), seat=0, seed=0)
    session.play(4)
    before = state(session)
    for action in (0, 4, 9, -1):
        with pytest.raises(IllegalMove):
            session.play(action)
    assert (state(session), session.replies) == (before, ("cell 0",))
    assert session.undo()
    assert not session.undo()


def test_the_seed_decides() -> None:
    boards = [Session("ludo", RandomPlayer(), seat=1, seed=seed).game.text(0) for seed in (1, 1, 2, 3)]
    assert boards[0] == boards[1]
    assert len(set(boards)) > 1


def test_a_hint_is_the_players_own_move_and_asking_changes_nothing() -> None:
    session = Session("tic_tac_toe", Lowest(), seat=0, seed=0)
    session.play(0)
    before = state(session)
    assert session.hint().move == Move(2, "cell 2")
    assert session.hint().opinion is None
    assert state(session) == before
    drawn = Session("connect_four", RandomPlayer(), seat=0, seed=4)
    asked = [drawn.hint().move for _ in range(3)]
    assert len(set(asked)) == 1
    other = Session("connect_four", RandomPlayer(), seat=0, seed=4)
    for one in (drawn, other):
        one.play(3)
    assert drawn.replies == other.replies


def test_a_hint_of_a_network_evaluates_all_moves(tmp_path: Path) -> None:
    PPO("paceline/TicTacToe-v0", num_workers=0, n_envs=4, hidden_sizes=(8,)).save(tmp_path / "model")
    session = Session("tic_tac_toe", load_net(tmp_path / "model"), seat=0, seed=0)
    session.play(4)
    hint = session.hint()
    assert hint.opinion is not None
    assert np.nanargmax(hint.opinion.moves) == hint.move.action
    assert np.isfinite(hint.opinion.moves).sum() == len(session.moves()) == 7


def test_there_is_no_hint_for_a_finished_game() -> None:
    session = Session("tic_tac_toe", Lowest(), seat=0, seed=0)
    for cell in (4, 3, 5):
        session.play(cell)
    with pytest.raises(IllegalMove, match="the game is over"):
        session.hint()
    assert session.undo()
    assert session.hint().move.name.startswith("cell")

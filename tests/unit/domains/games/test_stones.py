"""Connect Four and Tic-tac-toe, compared with a slow reference."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.domains.games.playing import begun, rows_of
from tests.unit.domains.games.slow import SlowLines

from paceline.domains.games import ConnectFour, TicTacToe
from paceline.domains.games.players import RandomPlayer
from paceline.domains.games.stones import Stones

SHAPES: dict[type[Stones], tuple[int, int, int, bool]] = {
    ConnectFour: (6, 7, 4, True),
    TicTacToe: (3, 3, 3, False),
}
BOTH = pytest.mark.parametrize("engine", list(SHAPES))


@BOTH
@given(st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=6)
def test_whole_games_equal_the_slow_reference(engine: type[Stones], n: int, choices: random.Random) -> None:
    game = begun(engine, n)
    assert isinstance(game, Stones)
    slow = [SlowLines(*SHAPES[engine]) for _ in range(n)]
    while not game.over.all():
        rows = np.flatnonzero(~game.over)
        legal, wins, blocks = game.legal(rows), game.lines(rows), game.lines(rows, other=True)
        for i, row in enumerate(rows):
            assert game.mover[row] == slow[row].mover
            assert set(np.flatnonzero(legal[i])) == slow[row].legal()
            assert set(np.flatnonzero(wins[i])) == slow[row].wins(slow[row].mover)
            assert set(np.flatnonzero(blocks[i])) == slow[row].wins(1 - slow[row].mover)
        actions = np.array([choices.choice(sorted(slow[row].legal())) for row in rows])
        for row, action in zip(rows, actions, strict=True):
            slow[row].play(int(action))
        game.play(rows, actions)
        for seat in (0, 1):
            seen = game.observe(rows, np.full(len(rows), seat, np.int8))
            assert seen.tolist() == [slow[row].observation(seat) for row in rows]
        for row in rows:
            assert game.over[row] == slow[row].over
            if slow[row].over:
                assert game.winner[row] == (-1 if slow[row].winner is None else slow[row].winner)
    assert not game.legal(rows_of(game)).any()


@BOTH
def test_full_boards_are_draws(engine: type[Stones]) -> None:
    game = begun(engine, 2000)
    draw = np.random.default_rng(0)
    while not game.over.all():
        rows = np.flatnonzero(~game.over)
        game.play(rows, RandomPlayer().choose(game, rows, draw.integers(0, 2**64, len(rows), np.uint64)))
    stones = game.observe(rows_of(game)).sum(axis=1)
    drawn = game.winner == -1
    assert drawn.any()
    assert (stones[drawn] == game.obs_size / 2).all()
    assert (stones[~drawn] < game.obs_size / 2).any()
    assert (game.winner == 0).mean() > (game.winner == 1).mean(), "the first player has an advantage"

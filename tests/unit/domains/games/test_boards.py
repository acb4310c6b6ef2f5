"""Properties that all game engines share."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.domains.games.playing import ENGINES, any_move, begun, board, play, rows_of, same, seeds, snapshot

from paceline.domains.games import GAMES, Engine, TicTacToe, game_of
from paceline.envs.game import IllegalMove
from paceline.errors import ConfigError, EnvError

EACH = pytest.mark.parametrize("engine", ENGINES)


@EACH
def test_a_board_does_not_depend_on_other_boards(engine: Engine) -> None:
    draw = np.random.default_rng(1)
    alone, crowd = engine(1), engine(5)
    alone.reset(np.array([0]), seeds(42))
    crowd.reset(rows_of(crowd), seeds(7, 8, 9, 42, 10))
    while not alone.over[0]:
        action = any_move(alone, 0, draw)
        play(alone, 0, action)
        rows = np.array([3, *draw.permutation([0, 1, 2, 4])[: draw.integers(0, 5)]])
        ended = rows[crowd.over[rows]]
        crowd.reset(ended, draw.integers(0, 2**64, len(ended), np.uint64))
        crowd.play(rows, np.array([action, *(any_move(crowd, int(row), draw) for row in rows[1:])]))
        assert board(crowd, 3) == board(alone, 0)
        assert np.array_equal(crowd.observe(np.array([3]))[0], alone.observe(np.array([0]))[0])


@EACH
def test_copying_a_row_copies_a_board(engine: Engine) -> None:
    draw = np.random.default_rng(2)
    game = begun(engine, 3)
    for _ in range(5):
        game.play(rows_of(game), np.array([any_move(game, row, draw) for row in range(3)]))
    for array in game.state.values():
        array[2] = array[0]
    while not game.over[0]:
        action = any_move(game, 0, draw)
        play(game, 0, action)
        assert board(game, 2) != board(game, 0), "a copy, not an alias"
        play(game, 2, action)
        assert board(game, 2) == board(game, 0)


@EACH
@pytest.mark.parametrize("wrong", [-1, 99, 10**12, -(10**12), None])
@pytest.mark.parametrize("whole", [True, False])
def test_illegal_moves_are_refused_with_nothing_changed(engine: Engine, wrong: int | None, whole: bool) -> None:
    draw = np.random.default_rng(3)
    game = begun(engine, 4)
    while game.legal(np.array([2])).all():  # until there is a move which is not legal
        play(game, 2, 3 if game.name == "connect_four" else any_move(game, 2, draw))
    rows = rows_of(game) if whole else np.array([0, 2])
    actions = np.array([any_move(game, int(row), draw) for row in rows])
    at = list(rows).index(2)
    legal = np.flatnonzero(game.legal(np.array([2]))[0])
    actions[at] = np.argmin(game.legal(np.array([2]))[0]) if wrong is None else wrong
    before = snapshot(game)
    text = rf"{game.name}, board 2: action {actions[at]} is not legal \(legal: {', '.join(map(str, legal))}\)\. "
    with pytest.raises(IllegalMove, match=text):
        game.play(rows, actions)
    assert same(before, snapshot(game))


@EACH
def test_a_finished_board_takes_no_more_moves(engine: Engine) -> None:
    draw = np.random.default_rng(4)
    game = begun(engine, 2)
    while not game.over[1]:
        play(game, 1, any_move(game, 1, draw))
    assert not game.legal(np.array([1])).any()
    before = snapshot(game)
    with pytest.raises(IllegalMove, match=f"{game.name}, board 1: the game is over"):
        game.play(rows_of(game), np.array([any_move(game, 0, draw), 0]))
    assert same(before, snapshot(game))
    game.reset(np.array([1]), seeds(1))
    assert not game.over[1]
    assert game.legal(np.array([1])).any()


@EACH
def test_a_move_before_the_first_reset_is_refused(engine: Engine) -> None:
    game = engine(1)
    assert game.over[0]
    with pytest.raises(EnvError, match="Reset the board first"):
        play(game, 0, 0)


@EACH
def test_calls_with_no_rows_change_nothing(engine: Engine) -> None:
    game = begun(engine, 2)
    none = np.arange(0)
    before = snapshot(game)
    game.reset(none, seeds())
    game.play(none, np.arange(0))
    assert game.observe(none).shape == (0, game.obs_size)
    assert game.legal(none).shape == (0, game.actions)
    assert same(before, snapshot(game))


@EACH
def test_returned_arrays_are_owned_by_the_caller(engine: Engine) -> None:
    game = begun(engine, 2)
    before = snapshot(game)
    for rows in (rows_of(game), np.array([1])):
        game.legal(rows)[:] = False
        game.observe(rows)[:] = 9
        assert game.legal(rows).any(axis=1).all()
    assert same(before, snapshot(game))
    seen = game.observe(rows_of(game))
    assert seen.dtype == np.float32
    assert seen.min() >= 0
    assert seen.max() <= 1


@EACH
def test_rows_may_come_in_any_order(engine: Engine) -> None:
    draw = np.random.default_rng(5)
    one, other = begun(engine, 6), begun(engine, 6)
    for _ in range(6):
        actions = np.array([any_move(one, row, draw) for row in range(6)])
        order = draw.permutation(6)
        one.play(rows_of(one), actions)
        other.play(order, actions[order])
        assert same(one.state, other.state)
        if one.over.any():
            break
        assert np.array_equal(one.observe(order), one.observe(rows_of(one))[order])


def test_no_boards_are_refused() -> None:
    with pytest.raises(ConfigError, match="n=0: must be at least 1"):
        TicTacToe(0)


def test_engines_are_found_by_name_and_by_id() -> None:
    assert list(GAMES) == ["ludo", "connect_four", "tic_tac_toe"]
    assert [game_of(f"paceline/{name}-v0") for name in ("Ludo", "ConnectFour", "TicTacToe")] == list(GAMES.values())
    assert game_of("CartPole-v1") is None
    assert game_of("no such env") is None

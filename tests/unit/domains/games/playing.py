"""Helpers to play games in tests: rows, seeds and random legal moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games import ConnectFour, Engine, Ludo, TicTacToe
from paceline.envs.game import Game, Rows
from paceline.ops.random_bits import mix

ENGINES: tuple[Engine, ...] = (Ludo, ConnectFour, TicTacToe)


def rows_of(game: Game) -> Rows:
    return np.arange(game.n)


def seeds(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


def begun(engine: Callable[[int], Game], n: int, seed: int = 0) -> Game:
    game = engine(n)
    game.reset(rows_of(game), mix(np.arange(n, dtype=np.uint64) + np.uint64(seed)))
    return game


def any_move(game: Game, row: int, draw: np.random.Generator) -> int:
    return int(draw.choice(np.flatnonzero(game.legal(np.array([row]))[0])))


def play(game: Game, row: int, *actions: int) -> None:
    for action in actions:
        game.play(np.array([row]), np.array([action]))


def snapshot(game: Game) -> dict[str, NDArray[Any]]:
    return {name: array.copy() for name, array in game.state.items()}


def board(game: Game, row: int) -> dict[str, Any]:
    """The complete state of one board."""
    return {name: array[row].tolist() for name, array in game.state.items()}


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)

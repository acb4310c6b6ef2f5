"""`Boards`: base class of the game engines, with n boards in arrays and legal moves as bits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.game import Game, Rows, illegal
from paceline.errors import check_range

_ALL = slice(None)


class Boards(Game):
    """n boards of a game. No game has begun before `reset`.

    An engine keeps its arrays in `state` and changes them in place only. Bit a of `_moves` is set if action a is legal;
    no bit is set when the game is over.

    Args:
        n: Number of boards.
    """

    def __init__(self, n: int) -> None:
        check_range("n", n, "A game needs a board.", at_least=1)
        self.n = n
        self.mover = np.zeros(n, np.int8)
        self.over = np.ones(n, np.bool_)
        self.winner = np.full(n, -1, np.int8)
        self._moves = np.zeros(n, np.int64)
        self.state: dict[str, NDArray[Any]] = {
            "mover": self.mover,
            "over": self.over,
            "winner": self.winner,
            "moves": self._moves,
        }
        self._every = np.arange(n).tobytes()
        self._masks = _masks(self.actions)

    def legal(self, rows: Rows) -> NDArray[np.bool_]:
        """[k, actions] legal actions of the players to move, as a new array; all False for a finished game."""
        return self._masks.take(self._moves[self._at(rows)], axis=0)

    def _at(self, rows: Rows) -> Rows | slice:
        """An index for these boards: a slice if they are all boards in order, so that numpy copies nothing."""
        return _ALL if len(rows) == self.n and rows.tobytes() == self._every else rows

    def _require_legal(self, rows: Rows, moves: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Raise IllegalMove if an action is not among the legal moves of its board.

        Actions out of range are illegal too: numpy returns 0 for a shift by a negative or a too large number.
        """
        allowed = (moves >> actions) & 1
        if not allowed.all():
            first = int(allowed.argmin())
            raise illegal(self, int(rows[first]), int(actions[first]))


@cache
def _masks(actions: int) -> NDArray[np.bool_]:
    """[2**actions, actions] the mask of each set of bits. Cached and shared by all boards: do not write to it."""
    bits = np.arange(1 << actions)[:, None] >> np.arange(actions)
    return (bits & 1).astype(np.bool_)

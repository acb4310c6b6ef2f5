"""What the engines share: boards in arrays, legal moves as bits, and the refusal of illegal ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.game import Game, Rows, illegal
from paceline.errors import check_range

_ALL = slice(None)


class Boards(Game):
    """n boards, all of them still to be begun.

    An engine keeps its arrays in `state` and only ever writes into them. Bit a of `_moves` says that action a is legal;
    it is 0 where the game is over.

    Args:
        n: How many boards.
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
        """[k, actions] what the movers may do, a new array; nothing where over."""
        return self._masks.take(self._moves[self._at(rows)], axis=0)

    def _at(self, rows: Rows) -> Rows | slice:
        """An index for these boards. A slice, if they are all in order: numpy then copies nothing."""
        return _ALL if len(rows) == self.n and rows.tobytes() == self._every else rows

    def _require_legal(self, rows: Rows, moves: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Refuse if any of these actions is not among the moves of its board.

        Shifting by more bits than there are, or by a negative number, gives 0 in numpy: no such action is legal either.
        """
        allowed = (moves >> actions) & 1
        if not allowed.all():
            first = int(allowed.argmin())
            raise illegal(self, int(rows[first]), int(actions[first]))


@cache
def _masks(actions: int) -> NDArray[np.bool_]:
    """[2**actions, actions] the mask that each set of bits stands for. Shared by all boards: only to be read."""
    bits = np.arange(1 << actions)[:, None] >> np.arange(actions)
    return (bits & 1).astype(np.bool_)

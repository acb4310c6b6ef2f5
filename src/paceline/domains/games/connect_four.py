"""Connect Four as a bitboard: seven columns of six cells, four stones in a line win.

Bit 7c + r is row r (from the bottom) of column c. Bit 6 of every column is always 0, so that no line continues from
the top of one column into the next.

     5 12 19 26 33 40 47
     4 11 18 25 32 39 46
     3 10 17 24 31 38 45
     2  9 16 23 30 37 44
     1  8 15 22 29 36 43
     0  7 14 21 28 35 42
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games.stones import Stones

_WIDTH, _HEIGHT = 7, 6
_BOTTOM: NDArray[np.int64] = np.left_shift(1, 7 * np.arange(_WIDTH))  # [7] the lowest cell of each column
_COLUMN: NDArray[np.int64] = _BOTTOM * ((1 << _HEIGHT) - 1)  # [7] all cells of each column
_TOPS = int((_BOTTOM << (_HEIGHT - 1)).sum())
_DIRECTIONS = np.array([1, 7, 6, 8])  # up, right, and the diagonals down and up


class ConnectFour(Stones):
    """n boards of Connect Four. Action c drops a stone into column c from the left; observations have 84 numbers.

    Args:
        n: Number of boards.
    """

    name = "connect_four"
    actions = _WIDTH
    obs_size = 2 * _WIDTH * _HEIGHT
    cells = np.arange(_HEIGHT)[::-1, None] + 7 * np.arange(_WIDTH)

    def text(self, row: int) -> str:
        """The board, with the numbers of the columns above it."""
        marks = self._marks(row, np.full((_HEIGHT, _WIDTH), "."))
        lines = [np.arange(_WIDTH).astype(str), *marks]
        return "\n".join([f"Connect Four, {self._status(row)}", *(f" {' '.join(line)}" for line in lines)])

    def move_name(self, row: int, action: int) -> str:
        """The name of an action, such as `column 3`."""
        del row
        return f"column {action}"

    def _stone(self, taken: NDArray[np.int64], actions: NDArray[np.int64]) -> NDArray[np.int64]:
        # The stones of a column are its lowest bits, so adding 1 to it carries into its first free cell.
        return (taken + _BOTTOM.take(actions)) & _COLUMN.take(actions)

    def _filled(self, stone: NDArray[np.int64], actions: NDArray[np.int64]) -> NDArray[np.int64]:
        full: NDArray[np.int64] = np.left_shift((stone & _TOPS) != 0, actions)
        return full

    def _lines(self, stones: NDArray[np.int64]) -> NDArray[np.bool_]:
        step = _DIRECTIONS.reshape(-1, *[1] * stones.ndim)
        pairs = stones & (stones >> step)  # [4, ...] the first of two in a line
        fours = pairs & (pairs >> 2 * step)
        found: NDArray[np.bool_] = np.bitwise_or.reduce(fours, axis=0) != 0
        return found

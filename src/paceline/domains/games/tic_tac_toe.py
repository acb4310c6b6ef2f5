"""Tic-tac-toe as a bitboard: nine cells, three stones in a line win."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games.stones import Stones

_ROWS = (0b000000111, 0b000111000, 0b111000000)
_COLUMNS = (0b001001001, 0b010010010, 0b100100100)
_DIAGONALS = (0b100010001, 0b001010100)
_ALL_STONES = np.arange(512)
LINED: NDArray[np.bool_] = np.logical_or.reduce([_ALL_STONES & line == line for line in _ROWS + _COLUMNS + _DIAGONALS])
"""[512] whether the stones of one player, as bits, contain a line."""


class TicTacToe(Stones):
    """n boards of Tic-tac-toe. Action a places a stone on cell a from the top left; observations have 18 numbers.

    Args:
        n: Number of boards.
    """

    name = "tic_tac_toe"
    actions = 9
    obs_size = 18
    cells = np.arange(9).reshape(3, 3)

    def text(self, row: int) -> str:
        """The board, with the action's number on each empty cell."""
        marks = self._marks(row, np.array(list("012345678")).reshape(3, 3))
        lines = [f" {' | '.join(line)}" for line in marks]
        return "\n".join([f"Tic-tac-toe, {self._status(row)}", "\n---+---+---\n".join(lines)])

    def move_name(self, row: int, action: int) -> str:
        """The name of an action, such as `cell 4`."""
        del row
        return f"cell {action}"

    def _stone(self, taken: NDArray[np.int64], actions: NDArray[np.int64]) -> NDArray[np.int64]:
        del taken
        return np.left_shift(1, actions)

    def _filled(self, stone: NDArray[np.int64], actions: NDArray[np.int64]) -> NDArray[np.int64]:
        del actions
        return stone

    def _lines(self, stones: NDArray[np.int64]) -> NDArray[np.bool_]:
        lined: NDArray[np.bool_] = LINED.take(stones)
        return lined

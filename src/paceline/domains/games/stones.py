"""`Stones`: base class of Connect Four and Tic-tac-toe, in which players place stones until one has a line.

Subclasses add the geometry. The stones of a player are the bits of one int64 (a bitboard), so that a move on a thousand
boards takes a few numpy calls.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from paceline.domains.games.boards import Boards
from paceline.envs.game import Rows

MARKS = "XO"
"""Characters for the stones of players 0 and 1."""


class Stones(Boards):
    """n boards, stored from the side of the player to move: own and opponent's stones are swapped after every move.

    The observation has two planes of 0 and 1, own stones and opponent's stones, with cells in the order of `cells`.

    Args:
        n: Number of boards.
    """

    cells: NDArray[np.intp]
    """[height, width] the bit of each cell, from the top left as displayed."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self._mine = np.zeros(n, np.int64)
        self._other = np.zeros(n, np.int64)
        self.state |= {"mine": self._mine, "other": self._other}
        self._planes = np.concatenate([self.cells.ravel(), self.cells.ravel() + 64])

    @abstractmethod
    def _stone(self, taken: NDArray[np.int64], actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bit of the stone that each (legal) action places, given all stones on the board."""

    @abstractmethod
    def _filled(self, stone: NDArray[np.int64], actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The bit of each action that becomes illegal when its stone is placed, else 0."""

    @abstractmethod
    def _lines(self, stones: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the stones of one player contain a line."""

    def reset(self, rows: Rows, seeds: NDArray[np.uint64]) -> None:
        """Begin new games on these boards; player 0 moves first. Ignores the seeds, because there are no dice."""
        del seeds
        at = self._at(rows)
        self._mine[at] = self._other[at] = 0
        self._moves[at] = (1 << self.actions) - 1
        self.mover[at] = 0
        self.over[at] = False
        self.winner[at] = -1

    def play(self, rows: Rows, actions: NDArray[np.int64]) -> None:
        """Place a stone on each of these boards. See `Game.play`."""
        at = self._at(rows)
        moves, other, mover = self._moves[at], self._other[at], self.mover[at]
        self._require_legal(rows, moves, actions)
        stone = self._stone(self._mine[at] | other, actions)
        mine = self._mine[at] | stone
        won = self._lines(mine)
        moves = (moves ^ self._filled(stone, actions)) * ~won
        self.winner[at] = np.where(won, mover, -1)
        self.over[at] = moves == 0  # won, or a full board: a draw
        self._moves[at] = moves
        self._mine[at] = other
        self._other[at] = mine
        self.mover[at] = 1 - mover

    def observe(self, rows: Rows, seats: NDArray[np.int8] | None = None) -> NDArray[np.float32]:
        """The two planes. See `Game.observe`."""
        at = self._at(rows)
        words = np.empty((len(rows), 2), "<i8")
        words[:, 0], words[:, 1] = self._mine[at], self._other[at]
        if seats is not None:
            away = np.flatnonzero(seats != self.mover[at])
            words[away] = words[away, ::-1]
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")  # [k, 128]
        return bits.take(self._planes, axis=1).astype(np.float32)

    def lines(self, rows: Rows, *, other: bool = False) -> NDArray[np.bool_]:
        """The legal actions that would win at once.

        Args:
            rows: [k]
            other: Whether to return the moves with which the opponent would win if it were its turn.

        Returns:
            [k, actions]
        """
        at = self._at(rows)
        mine, theirs = self._mine[at, None], self._other[at, None]
        stone = self._stone(mine | theirs, np.arange(self.actions))  # [k, actions]
        return self._lines((theirs if other else mine) | stone) & self.legal(rows)

    def _marks(self, row: int, empty: NDArray[np.str_]) -> NDArray[np.str_]:
        """[height, width] a character per cell; that of `empty` for cells without a stone."""
        first, second = (self._mine, self._other)[:: -1 if self.mover[row] else 1]
        marks = empty.copy()
        for stones, mark in zip((first, second), MARKS, strict=True):
            marks[(stones[row] >> self.cells) & 1 == 1] = mark
        return marks

    def _status(self, row: int) -> str:
        """The player to move, or the result."""
        if not self.over[row]:
            return f"{MARKS[self.mover[row]]} to move"
        return f"{MARKS[self.winner[row]]} has won" if self.winner[row] >= 0 else "a draw"

"""A tree of sums over priorities: draws in proportion to them, whole batches at a time.

    top      [ sum of 256 leaves, ... ]                       searched as one array
    middle   [ sum of 16 leaves, ... ]  16 to a top node      looked through, 16 at a time
    leaves   [ priority, ... ]          16 to a middle node

Three levels, because numpy's price is by the call: a tree of two children a node would take 20 levels for a million
leaves, at five calls each. Sums are made anew from their children, never by differences, so that errors do not add up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHILDREN = 16
_RUNNING = np.triu(np.ones((CHILDREN, CHILDREN)))
"""`rows @ _RUNNING` are running sums: twice as fast as `cumsum` for rows this short."""

Floats = NDArray[np.float64]
Items = NDArray[np.int64]


class SumTree:
    """Priorities of `size` items, all zero at first. Used by one thread.

    Args:
        size: How many items.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        tops = -(-size // CHILDREN**2)
        self._leaves = np.zeros((tops * CHILDREN, CHILDREN))
        self._middle = np.zeros((tops, CHILDREN))
        self._top = np.zeros(tops)
        self._rows = np.arange(0)

    @property
    def total(self) -> float:
        """The sum of all."""
        return float(self._top.sum())

    def get(self, index: Items) -> Floats:
        """Priorities of some items."""
        taken: Floats = self._leaves.reshape(-1).take(index)
        return taken

    def set(self, index: Items, priority: Floats | float) -> None:
        """Give some items new priorities; of an index that comes twice, the last counts."""
        self._leaves.reshape(-1)[index] = priority
        node = index // CHILDREN
        self._middle.reshape(-1)[node] = self._leaves.take(node, axis=0).sum(1)
        node //= CHILDREN
        self._top[node] = self._middle.take(node, axis=0).sum(1)

    def fill(self, priority: Floats) -> None:
        """Give all items new priorities, [size]."""
        self._leaves.reshape(-1)[: self.size] = priority
        self._middle.reshape(-1)[:] = self._leaves.sum(1)
        self._top[:] = self._middle.sum(1)

    def find(self, share: Floats) -> Items:
        """The items at which the running sum of priorities passes these shares of the total, which is not 0."""
        tops = np.cumsum(self._top)
        mass = np.minimum(share * tops[-1], np.nextafter(tops[-1], 0.0))
        node = np.searchsorted(tops, mass, side="right")
        rest = mass - np.where(node, tops.take(node - 1), 0.0)
        child, rest = self._down(self._middle, node, rest)
        node = node * CHILDREN + child
        found: Items = node * CHILDREN + self._down(self._leaves, node, rest)[0]
        return found

    def _down(self, level: Floats, node: Items, rest: Floats) -> tuple[Items, Floats]:
        """The children at which the running sum passes `rest`, and what is left of it before them."""
        sums = level.take(node, axis=0) @ _RUNNING  # [n, CHILDREN]
        # Sums of sums round: what is looked for must lie below what the children have.
        rest = np.minimum(rest, np.nextafter(sums[:, -1], 0.0))
        child = (sums > rest[:, None]).argmax(1)
        if len(self._rows) != len(node):
            self._rows = np.arange(0, len(node) * CHILDREN, CHILDREN)
        return child, rest - np.where(child, sums.reshape(-1).take(self._rows + child - 1, mode="wrap"), 0.0)

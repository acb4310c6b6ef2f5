"""Sum tree over priorities: draws whole batches of items with probability proportional to priority.

    top      [ sum of 256 leaves, ... ]                       searched with one searchsorted
    middle   [ sum of 16 leaves, ... ]  16 per top node       scanned, 16 at a time
    leaves   [ priority, ... ]          16 per middle node

It has three levels because numpy's cost is per call: a binary tree over a million leaves has 20 levels, at five calls
each. Sums are recomputed from their children, never updated by differences, so that rounding errors do not accumulate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHILDREN = 16
_RUNNING = np.triu(np.ones((CHILDREN, CHILDREN)))
"""`rows @ _RUNNING` gives running sums: twice as fast as `cumsum` for rows this short."""

Floats = NDArray[np.float64]
Items = NDArray[np.int64]


class SumTree:
    """Priorities of `size` items, all zero initially. Not thread-safe.

    Args:
        size: Number of items.
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
        """Sum of all priorities."""
        return float(self._top.sum())

    def get(self, index: Items) -> Floats:
        """Return the priorities of the given items."""
        taken: Floats = self._leaves.reshape(-1).take(index)
        return taken

    def set(self, index: Items, priority: Floats | float) -> None:
        """Set the priorities of the given items; if an index is repeated, the last value wins."""
        self._leaves.reshape(-1)[index] = priority
        node = index // CHILDREN
        self._middle.reshape(-1)[node] = self._leaves.take(node, axis=0).sum(1)
        node //= CHILDREN
        self._top[node] = self._middle.take(node, axis=0).sum(1)

    def fill(self, priority: Floats) -> None:
        """Set the priorities of all items, [size]."""
        self._leaves.reshape(-1)[: self.size] = priority
        self._middle.reshape(-1)[:] = self._leaves.sum(1)
        self._top[:] = self._middle.sum(1)

    def find(self, share: Floats) -> Items:
        """Return the items at which the running sum passes these fractions of the total, which must be positive."""
        tops = np.cumsum(self._top)
        mass = np.minimum(share * tops[-1], np.nextafter(tops[-1], 0.0))
        node = np.searchsorted(tops, mass, side="right")
        rest = mass - np.where(node, tops.take(node - 1), 0.0)
        child, rest = self._down(self._middle, node, rest)
        node = node * CHILDREN + child
        found: Items = node * CHILDREN + self._down(self._leaves, node, rest)[0]
        return found

    def _down(self, level: Floats, node: Items, rest: Floats) -> tuple[Items, Floats]:
        """Return the child at which the running sum passes `rest`, and what remains of `rest` before that child."""
        sums = level.take(node, axis=0) @ _RUNNING  # [n, CHILDREN]
        # Sums of sums round differently, so `rest` may exceed the sum of these children: clamp it below that sum.
        rest = np.minimum(rest, np.nextafter(sums[:, -1], 0.0))
        child = (sums > rest[:, None]).argmax(1)
        if len(self._rows) != len(node):
            self._rows = np.arange(0, len(node) * CHILDREN, CHILDREN)
        return child, rest - np.where(child, sums.reshape(-1).take(self._rows + child - 1, mode="wrap"), 0.0)

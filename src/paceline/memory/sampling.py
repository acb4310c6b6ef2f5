"""Sampling from the replay: uniform, or prioritised by TD error.

Samplers belong to the learner; workers never use them. Random numbers come from a generator that the caller seeds, so
the same replay and the same seed give the same items.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.memory.replay import Replay
from paceline.ops.sum_tree import SumTree

SMALLEST = 1e-6
"""Added to every TD error, so that no item has probability zero."""


class Sampler(Protocol):
    """Chooses the items of a minibatch from a replay."""

    def rows_added(self, group: int) -> None:
        """Update after the head of a group has moved."""

    def draw(
        self, stream: np.random.Generator, count: int, beta: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Return items [count] of the replay, and their importance-sampling weights (None if all are 1).

        Args:
            stream: Random generator.
            count: Number of items.
            beta: Importance-sampling exponent; 1 corrects the bias of prioritised sampling fully.
        """

    def update_priorities(self, item: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        """Update priorities from the TD errors of items that were learned from."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what a checkpoint needs beside the replay."""

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned; the replay must be loaded first."""


class UniformSampler:
    """Draws all valid transitions with equal probability.

    Args:
        replay: The items.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def rows_added(self, group: int) -> None:
        """Nothing to update: the replay's heads define the range."""

    def draw(
        self,
        stream: np.random.Generator,
        count: int,
        beta: float,  # noqa: ARG002 - required by the protocol; uniform sampling has no bias to correct
    ) -> tuple[NDArray[np.int64], None]:
        """Return items; all weights are 1."""
        item = self._draw_any(stream, count)
        while not self._replay.all_valid:
            wrong = np.flatnonzero(~self._replay.valid(item))
            if not len(wrong):
                break
            item[wrong] = self._draw_any(stream, len(wrong))
        return item, None

    def _draw_any(self, stream: np.random.Generator, count: int) -> NDArray[np.int64]:
        replay, shape = self._replay, self._replay.shape
        low, high = replay.low, replay.high
        # A product instead of `integers`: four times as fast, and uniform to the precision of a double.
        position = stream.random(count)
        if replay.level:
            # All groups have the same range, so items of consecutive rows are contiguous.
            begin, end = int(low[0]) * shape.n_envs, int(high[0]) * shape.n_envs
            place = (position * (end - begin)).astype(np.int64)
            place += begin
            return np.remainder(place, shape.items, out=place)
        ends = np.cumsum((high - low) * shape.group_size)
        place = (position * ends[-1]).astype(np.int64)
        group = np.searchsorted(ends, place, side="right")
        back = ends[group] - place - 1
        row, column = high[group] - 1 - back // shape.group_size, back % shape.group_size
        items: NDArray[np.int64] = row % shape.rows * shape.n_envs + group * shape.group_size + column
        return items

    def update_priorities(self, item: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        """Nothing to update."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the sampler has no state."""
        return {}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore nothing."""


class PrioritisedSampler:
    """Draws items in proportion to |TD error| ** alpha (Schaul et al. 2016).

    Args:
        replay: The items.
        alpha: 0 is uniform, 1 fully proportional.
    """

    def __init__(self, replay: Replay, alpha: float) -> None:
        self._replay, self._alpha = replay, alpha
        self._tree = SumTree(replay.shape.items)
        self._largest = 1.0
        self._open = np.zeros((2, len(replay.head)), np.int64)  # [2, groups] rows with priorities: first, end

    def rows_added(self, group: int) -> None:
        """Give new rows a priority, and set that of rows about to be overwritten to zero."""
        replay, shape = self._replay, self._replay.shape
        low, high = int(replay.low[group]), int(replay.high[group])
        own = shape.columns(group, 1)
        columns = np.arange(own.start, own.stop)
        first, last = self._open[:, group].tolist()
        self._set(np.arange(first, min(low, last)), columns, 0.0)
        fresh = np.arange(max(last, low), high)
        if shape.priorities:
            stored = replay.rows("priority", max(last, low), high, own)
            first_priority: NDArray[np.float64] | float = self._power(stored)
        else:
            first_priority = self._largest
        self._set(fresh, columns, first_priority)
        self._open[:, group] = low, high

    def draw(
        self, stream: np.random.Generator, count: int, beta: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return items and importance-sampling weights of at most 1."""
        # Stratified: one item from each of `count` equal parts of the total, which has less variance.
        item = self._tree.find((np.arange(count) + stream.random(count)) / count)
        priority = self._tree.get(item)
        return item, ((priority.min() / priority) ** beta).astype(np.float32)

    def update_priorities(self, item: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        """Set the priorities of items from their newest TD errors."""
        priority = self._power(error)
        self._largest = max(self._largest, float(priority.max()))
        self._tree.set(item, priority)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return every priority, and the largest so far."""
        return {
            "priorities": self._tree.get(np.arange(self._tree.size)),
            "largest": np.array(self._largest),
            "open": self._open.copy(),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self._tree.fill(state["priorities"])
        self._largest = float(state["largest"])
        self._open[:] = state["open"]

    def _power(self, error: NDArray[np.float32]) -> NDArray[np.float64]:
        power: NDArray[np.float64] = (np.abs(error).astype(np.float64) + SMALLEST) ** self._alpha
        return power

    def _set(self, rows: NDArray[np.int64], columns: NDArray[np.int64], priority: NDArray[np.float64] | float) -> None:
        if not len(rows):
            return
        shape = self._replay.shape
        item = ((rows % shape.rows * shape.n_envs)[:, None] + columns).reshape(-1)
        value = np.broadcast_to(priority, (len(rows), len(columns))).reshape(-1)
        if not self._replay.all_valid:
            value = np.where(self._replay.valid(item), value, 0.0)
        self._tree.set(item, value)

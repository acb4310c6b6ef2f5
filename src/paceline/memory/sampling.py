"""Which items of a replay are learned from: any equally, or the surprising ones more often.

Both belong to the learner; workers never touch them. Numbers come from a stream that the caller keys, so that the
same replay and the same key give the same items.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.memory.replay import Replay
from paceline.ops.sum_tree import SumTree

SMALLEST = 1e-6
"""Added to every error, so that none is never drawn again."""


class Sampler(Protocol):
    """Chooses what to learn from."""

    def took_in(self, group: int) -> None:
        """A group's head has moved."""

    def draw(
        self, stream: np.random.Generator, count: int, beta: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
        """Items [count] of the replay, and what weight each error has (None for 1).

        Args:
            stream: Randomness.
            count: How many.
            beta: How much of the bias of drawing unequally is made good, up to 1.
        """

    def surprised(self, item: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        """What was learned of some items: how far off they were."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint keeps beside the replay."""

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from there, with a replay that was loaded already."""


class UniformSampler:
    """All that can be learned from, equally often.

    Args:
        replay: The items.
    """

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def took_in(self, group: int) -> None:
        """Nothing to remember: the heads say it all."""

    def draw(
        self,
        stream: np.random.Generator,
        count: int,
        beta: float,  # noqa: ARG002 - the protocol's; there is no bias to make good
    ) -> tuple[NDArray[np.int64], None]:
        """Items, all weights 1."""
        item = self._any(stream, count)
        while not self._replay.all_valid:
            wrong = np.flatnonzero(~self._replay.valid(item))
            if not len(wrong):
                break
            item[wrong] = self._any(stream, len(wrong))
        return item, None

    def _any(self, stream: np.random.Generator, count: int) -> NDArray[np.int64]:
        replay, shape = self._replay, self._replay.shape
        low, high = replay.low, replay.high
        # A product instead of `integers`: four times as fast, and as even as a double is fine.
        share = stream.random(count)
        if replay.level:
            # Rows are then numbered as they lie.
            begin, end = int(low[0]) * shape.n_envs, int(high[0]) * shape.n_envs
            place = (share * (end - begin)).astype(np.int64)
            place += begin
            return np.remainder(place, shape.items, out=place)
        ends = np.cumsum((high - low) * shape.group_size)
        place = (share * ends[-1]).astype(np.int64)
        group = np.searchsorted(ends, place, side="right")
        back = ends[group] - place - 1
        row, column = high[group] - 1 - back // shape.group_size, back % shape.group_size
        items: NDArray[np.int64] = row % shape.rows * shape.n_envs + group * shape.group_size + column
        return items

    def surprised(self, item: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        """All the same to it."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing."""


class PrioritisedSampler:
    """In proportion to the last error of each, to the power of alpha (Schaul et al. 2016).

    Args:
        replay: The items.
        alpha: 0 draws all equally often, 1 in full proportion.
    """

    def __init__(self, replay: Replay, alpha: float) -> None:
        self._replay, self._alpha = replay, alpha
        self._tree = SumTree(replay.shape.items)
        self._largest = 1.0
        self._open = np.zeros_like(replay.head), np.zeros_like(replay.head)  # [groups] rows with priorities: from, to

    def took_in(self, group: int) -> None:
        """New rows can be drawn, and those that are about to be overwritten no more."""
        replay, shape = self._replay, self._replay.shape
        low, high = int(replay.low[group]), int(replay.high[group])
        columns = np.arange(replay.columns(group).start, replay.columns(group).stop)
        first, last = (int(bound[group]) for bound in self._open)
        self._set(np.arange(first, min(low, last)), columns, 0.0)
        fresh = np.arange(max(last, low), high)
        if shape.priorities:
            said = replay.rows("priority", max(last, low), high, replay.columns(group))
            first_priority: NDArray[np.float64] | float = self._power(said)
        else:
            first_priority = self._largest
        self._set(fresh, columns, first_priority)
        self._open[0][group], self._open[1][group] = low, high

    def draw(
        self, stream: np.random.Generator, count: int, beta: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Items, and weights of at most 1."""
        # One from each of `count` equal parts of the whole: less noise than as many independent draws.
        item = self._tree.find((np.arange(count) + stream.random(count)) / count)
        priority = self._tree.get(item)
        return item, ((priority.min() / priority) ** beta).astype(np.float32)

    def surprised(self, item: NDArray[np.int64], error: NDArray[np.float32]) -> None:
        """Their priority is what they were off by now."""
        priority = self._power(error)
        self._largest = max(self._largest, float(priority.max()))
        self._tree.set(item, priority)

    def state(self) -> dict[str, NDArray[Any]]:
        """Every priority, and the largest there ever was."""
        return {
            "priorities": self._tree.get(np.arange(self._tree.size)),
            "largest": np.array(self._largest),
            "open": np.stack(self._open),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from `state()`."""
        self._tree.fill(state["priorities"])
        self._largest = float(state["largest"])
        self._open = state["open"][0].copy(), state["open"][1].copy()

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

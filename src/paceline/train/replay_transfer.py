"""The arrays that the driver and the nodes of a Ray cluster exchange, for DQN.

    down   weights, and epsilon of each env
    up     new rows, from the ring buffer of a node to the replay buffer of the driver

The ring buffer of a node holds only rows that are being written. The driver stores the final observations of truncated
episodes at its own indices, so these differ from the indices on the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.transitions import TransitionCollector
from paceline.memory.replay_rows import FINAL, PREFIX, ReplayShape, ReplayWriter
from paceline.memory.shared import Arena
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange
from paceline.train.plan import Plan
from paceline.train.rollout_transfer import RolloutTransfer


@dataclass(frozen=True, kw_only=True)
class ReplayPlan(Plan[TransitionCollector]):
    """A plan whose workers write to a replay buffer."""

    shape: ReplayShape
    """The shape of the replay buffer."""


@dataclass(frozen=True)
class ReplayTransfer(RolloutTransfer[TransitionCollector]):
    """Transfer for algorithms with a replay buffer. See `Transfer`."""

    plan: ReplayPlan
    """The plan of the driver."""

    def of(self, held: GroupRange | None) -> ReplayPlan:
        """Return the plan of this side: of a node with these groups, or for None of the driver."""
        return self.plan if held is None else self.plan.on_node(held)

    def exploration(self, arena: Arena, held: GroupRange | None) -> Iterator[NDArray[Any]]:
        """List epsilon of all envs. A node copies that of its own envs."""
        if held is None:
            yield arena["epsilon"]
            return
        epsilon = np.empty(self.plan.shape.n_envs, np.float32)
        yield epsilon
        arena["epsilon"][:] = epsilon[self.plan.shape.columns(*held)]

    def written(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, mine: GroupRange
    ) -> Iterator[NDArray[Any]]:
        """List the rows that a call has written, or after a reset the first observations."""
        ring = _Ring(arena, self.of(held).shape)
        if call.command == "collect":
            heads, _ = call.args
            rows = [count for written in call.results for count in written.rows]
            for group, count in enumerate(rows, mine.first_group):
                yield from ring.collected(group, heads[group], count, driver=held is None)
        else:
            heads = call.args[-1]
            if held is None:
                ring.cut(mine, heads, call.results if call.command == "restore" else None)
            for group in range(mine.first_group, mine.first_group + mine.groups):
                yield from ring.shown(group, heads[group], heads[group] + 1)


class _Ring:
    """Lists rows of the ring buffer of one side: the replay buffer of the driver, or the rows on a node."""

    def __init__(self, arena: Arena, shape: ReplayShape) -> None:
        self._arena, self._shape = arena, shape
        self._arrays = {field.name.removeprefix(PREFIX): arena[field.name] for field in shape.fields()}

    def collected(self, group: int, start: int, count: int, *, driver: bool) -> Iterator[NDArray[Any]]:
        """List rows `start` to `start + count - 1` of a group, with the observations after them."""
        yield from self.shown(group, start + 1, start + count + 1)
        reward_parts = [name for name in self._arrays if name.startswith("told/")]
        for name in ("action", "reward", "flags", "priority", *reward_parts):
            if name in self._arrays:
                yield from self._rows(name, group, start, start + count)
        columns = self._shape.columns(group, 1)
        at = np.arange(start, start + count) % self._shape.rows
        flags = self._arrays["flags"][
            at, columns
        ]  # a copy; on the driver, the flags have arrived before this line runs
        t, column = np.nonzero(flags & FINAL)
        finals = [name for name in self._arrays if name.startswith(("final_obs", "final_mask"))]
        if not len(t):
            return
        held, column = group - self._shape.first_group, column + columns.start
        if not driver:
            entries = self._arrays["final_at"][at[t], column]
            for name in finals:
                yield self._arrays[name][held, entries]
            return
        counted = self._arrays["final_count"]
        entries = (counted[held] + np.arange(len(t))) % (self._shape.rows * self._shape.group_size)
        for name in finals:
            field = self._arrays[name]
            received = np.empty((len(t), *field.shape[2:]), field.dtype)
            yield received
            field[held, entries] = received
        self._arrays["final_at"][at[t], column] = entries
        counted[held] += len(t)

    def shown(self, group: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """Yield views of the observations of a group in rows `start` to `stop - 1`."""
        for name in self._arrays:
            if name in ("mask", "age") or name.startswith("obs/"):
                yield from self._rows(name, group, start, stop)

    def cut(self, mine: GroupRange, heads: Sequence[int], restarted: Sequence[Sequence[int]] | None) -> None:
        """Truncate the current episodes of envs that start new ones.

        Args:
            mine: The groups of the workers that executed the call.
            heads: Next row of every group of the run.
            restarted: Per worker, the envs that could not be restored; None for all envs.
        """
        writer = ReplayWriter(self._arena, self._shape, *mine)
        size = self._shape.group_size
        first = mine.first_group * size
        all_envs = range(first, first + mine.groups * size)
        for env in all_envs if restarted is None else [env for envs in restarted for env in envs]:
            writer.cut(heads[env // size], env - first)

    def _rows(self, name: str, group: int, start: int, stop: int) -> Iterator[NDArray[Any]]:
        """List views of rows of a field: two views if the range wraps around the end of the ring buffer."""
        columns, rows = self._shape.columns(group, 1), self._shape.rows
        while start < stop:
            end = min(stop, start + rows - start % rows)
            yield self._arrays[name][start % rows : start % rows + end - start, columns]
            start = end

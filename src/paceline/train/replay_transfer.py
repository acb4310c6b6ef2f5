"""The arrays that the driver and the nodes of a Ray cluster exchange, for DQN.

    down   weights, and epsilon of each env
    up     new rows, from the ring buffer of a node to the replay buffer of the driver

The ring buffer of a node holds only rows that are being written. The driver stores the final observations of truncated
episodes at its own indices, so these differ from the indices on the node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.memory.replay_rows import FINAL, PREFIX, ReplayShape, ReplayWriter
from paceline.memory.shared import Arena, Field
from paceline.memory.weights import Snapshots
from paceline.runtime.protocol import Program, Share
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange
from paceline.train.dqn_job import DQNJob
from paceline.train.rollout_transfer import (
    EPISODE_CALLS,
    EPISODES,
    POOL,
    NodePlan,
    episodes_down,
    episodes_up,
    loads_of,
    not_finite_up,
    odds_down,
    own_histories,
    range_of,
    snapshots_down,
    token_of,
)


class ReplayPlan(NodePlan[DQNJob], Protocol):
    """The methods of a plan that `ReplayTransfer` uses."""

    @property
    def shape(self) -> ReplayShape:
        """The shape of the replay buffer."""

    @property
    def streams(self) -> bool:
        """Whether workers collect while the learner learns."""

    def on_node(self, held: GroupRange) -> ReplayPlan:
        """Return the same plan for the groups of one node."""


@dataclass(frozen=True, slots=True)
class ReplayTransfer:
    """Transfer for algorithms with a replay buffer. See `Transfer`."""

    plan: ReplayPlan
    """The plan of the driver."""
    weights: int
    """Number of parameters."""

    def program(self, held: GroupRange) -> Program[DQNJob]:
        """See `Transfer.program`."""
        return self.plan.on_node(held)

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        """See `Transfer.fields`."""
        return self.plan.on_node(held).fields(self.weights, workers)

    def loads(self, command: str) -> tuple[str, ...]:
        """See `Transfer.loads`."""
        return loads_of(self.plan.base, command)

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """See `Transfer.token`: weights are sent once per version in the async schedule, otherwise with every call."""
        return token_of(load, arena, int(arena["version"][0]) if self.plan.streams else command)

    def down(self, load: str, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """See `Transfer.down`."""
        if load == POOL:
            yield from snapshots_down(arena)
        elif load == EPISODES:
            yield from episodes_down(self.plan.base, arena, held, pool)
        else:
            yield from self._acting_down(arena, held)

    def _acting_down(self, arena: Arena, held: GroupRange | None) -> Iterator[NDArray[Any]]:
        version = arena["version"].copy()
        yield version
        yield arena["weights"]
        epsilon = arena["epsilon"] if held is None else np.empty(self.plan.shape.n_envs, np.float32)
        yield epsilon
        if self.plan.base.league is not None:
            yield from odds_down(arena)
        if held is not None:
            size = self.plan.shape.group_size
            arena["epsilon"][:] = epsilon[held.first_group * size : (held.first_group + held.groups) * size]
            if self.plan.streams:
                Snapshots(arena, ["weights"]).write(int(version[0]))
            arena["version"][:] = version

    def up(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
    ) -> Iterator[NDArray[Any]]:
        """See `Transfer.up`: the new rows, or after a reset the first observations."""
        if call.command not in (*EPISODE_CALLS, "collect"):
            return
        plan = self.plan if held is None else self.plan.on_node(held)
        mine, ring = range_of(pool), _Ring(arena, plan.shape)
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
        yield from episodes_up(plan.base, arena, mine)
        yield from not_finite_up(arena, pool)

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """See `Transfer.trimmed`: keeps only the histories of these workers' envs."""
        return own_histories(args, pool, self.plan.shape.group_size) if command == "restore" else args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """See `Transfer.posted`: there is nothing to record, as replayed transitions have no lag."""


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

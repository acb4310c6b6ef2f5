"""The arrays that the driver and the nodes of a Ray cluster exchange, for algorithms that learn from rollouts.

down   weights, observation statistics, odds of opponents    once per version, the same for all nodes
       weights of opponents                                  when the opponents change
       episode numbers                                       before envs start or restore episodes on a node
up     the slots of a node's groups, with the final observations of truncated episodes; memory of the workers
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from paceline.memory.opponent_pool import OpponentPool
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_copies import parts_of
from paceline.memory.slots import Slots
from paceline.memory.worker_status import MEMORY, NOT_FINITE
from paceline.runtime.protocol import J, Program, Share
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange
from paceline.train.plan import Plan
from paceline.train.worker_recipe import ENV_THREADS, WorkerRecipe

WEIGHTS, POOL, EPISODES = "weights", "pool", "episodes"
"""Names of the loads: what acting needs, the opponents of self-play, and the episode numbers."""
EPISODE_CALLS = ("reset", "restore")
"""Calls that start or restore episodes."""
LEARNER_FIELDS = ("samples", "order", "grads", "terms", "learning/")
"""Prefixes of fields that only the learner uses: a node's arena has them, but reserves no memory for them."""


@dataclass(frozen=True)
class RolloutTransfer(Generic[J]):
    """Transfer for synchronous rollouts. See `Transfer`."""

    plan: Plan[J]
    """The plan of the driver."""
    weights: int
    """Number of parameters."""

    def program(self, held: GroupRange) -> Program[J]:
        """See `Transfer.program`."""
        return self.of(held)

    def of(self, held: GroupRange | None) -> Plan[J]:
        """Return the plan of this side: of a node with these groups, or for None of the driver."""
        return self.plan if held is None else self.plan.on_node(held)

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        """See `Transfer.fields`."""
        fields = self.of(held).fields(self.weights, workers)
        return [replace(one, sparse=one.sparse or one.name.startswith(LEARNER_FIELDS)) for one in fields]

    def loads(self, command: str) -> tuple[str, ...]:
        """See `Transfer.loads`."""
        acting = (WEIGHTS, POOL) if self.plan.base.league is not None else (WEIGHTS,)
        if command in EPISODE_CALLS:
            return (EPISODES, *acting)
        return acting if command == "collect" else ()

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """See `Transfer.token`: weights are sent with every call, as they were updated before it; or per version."""
        if load == WEIGHTS:
            return int(arena["version"][0]) if self.plan.acts_on_snapshots else command
        return arena["pool/born"].tobytes() if load == POOL else None

    def down(self, load: str, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """See `Transfer.down`."""
        if load == POOL:
            pool_of_opponents = OpponentPool(arena)
            yield pool_of_opponents.weights
            yield pool_of_opponents.born
        elif load == EPISODES:
            yield from self._episodes_down(arena, held, pool)
        else:
            yield from self._acting_down(arena, held)

    def _acting_down(self, arena: Arena, held: GroupRange | None) -> Iterator[NDArray[Any]]:
        version = arena["version"].copy()
        yield version
        # In a pipeline, workers act with a copy of the fields.
        arrays = arena.__getitem__ if self.plan.acts_on_snapshots else self.of(held).acting(arena)[0]
        yield from map(arrays, self.plan.base.acting_names())
        yield from self.exploration(arena, held)
        if self.plan.base.league is not None:
            opponents = OpponentPool(arena)
            yield opponents.odds
            yield opponents.next_epsilon
        if held is not None:
            if (snapshots := self.plan.snapshots(arena)) is not None:
                snapshots.write(int(version[0]))
            arena["version"][:] = version

    def _episodes_down(self, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """List the episode numbers and tags of all envs. A node copies those of the workers that the call is for."""
        base = self.plan.base
        if held is None:
            yield arena["episode"]
            yield from base.tags(arena).values()
            return
        called = range_of(pool)
        in_run = base.shape.columns(*called)
        on_node = replace(base.shape, first_group=held.first_group, groups=held.groups).columns(*called)
        episode = np.empty(base.shape.n_envs, np.int64)
        yield episode
        arena["episode"][on_node] = episode[in_run]
        for tag in base.tags(arena).values():
            received = np.empty((base.shape.n_envs, *tag.shape[1:]), tag.dtype)
            yield received
            tag[in_run] = received[in_run]

    def exploration(self, arena: Arena, held: GroupRange | None) -> Iterator[NDArray[Any]]:  # noqa: ARG002 - DQN overrides this
        """List what workers explore with. Nothing: they sample from the policy's action distribution."""
        return iter(())

    def up(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
    ) -> Iterator[NDArray[Any]]:
        """See `Transfer.up`."""
        if call.command not in (*EPISODE_CALLS, "collect"):
            return
        mine = range_of(pool)
        yield from self.written(call, arena, held, mine)
        yield arena["episode"][self.of(held).base.shape.columns(*mine)]
        in_run = self.plan.base.shape.columns(*mine)
        for tag in self.plan.base.tags(arena).values():  # indexed by the env's number in the whole run, on both sides
            yield tag[in_run]
        for share in pool:
            for entry in (MEMORY, NOT_FINITE):
                yield arena["heartbeat"][share.worker, entry : entry + 1]
            if call.command in EPISODE_CALLS:
                yield arena[ENV_THREADS][share.worker : share.worker + 1]

    def written(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, mine: GroupRange
    ) -> Iterator[NDArray[Any]]:
        """List the slots that a call has filled, or after a reset the first observations."""
        base = self.of(held).base
        if call.command == "collect":
            return iter(parts_of(self.filled(arena, base, call), *mine))
        return self.shown(arena, base, mine)

    def filled(self, arena: Arena, base: WorkerRecipe, call: ExecutedCall) -> Slots:  # noqa: ARG002 - there is one set of slots
        """Return the slots that a call has filled."""
        return Slots(arena, base.shape)

    def shown(self, arena: Arena, base: WorkerRecipe, mine: GroupRange) -> Iterator[NDArray[Any]]:
        """Yield views of the first observations of episodes, which the driver records before a rollout starts."""
        obs, mask = Slots(arena, base.shape).shown()
        for leaf in (*obs.values(), *(() if mask is None else (mask,))):
            yield leaf[base.shape.columns(*mine)]

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """See `Transfer.trimmed`: keeps only the histories of these workers' envs."""
        if command != "restore":
            return args
        histories, *rest = args
        own = self.plan.base.shape.columns(*range_of(pool))
        mine = range(own.start, own.stop)
        return [history if env in mine else None for env, history in enumerate(histories)], *rest

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """See `Transfer.posted`: there is nothing to record."""


class SlotTransfer(RolloutTransfer[J]):
    """Transfer for asynchronous rollouts: each worker fills slots with the newest weights that its node has."""

    def filled(self, arena: Arena, base: WorkerRecipe, call: ExecutedCall) -> Slots:
        """Return the set of slots that the call named."""
        return Slots(arena, base.shape, f"{call.args[1]}/")

    def shown(self, arena: Arena, base: WorkerRecipe, mine: GroupRange) -> Iterator[NDArray[Any]]:  # noqa: ARG002
        """List no observations: the driver does not record them, as envs are not restored."""
        return iter(())

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """See `Transfer.posted`: a slot that is requested now is collected with the newest weights or later ones."""
        if command == "collect":
            arena["begun_version"][worker, args[1]] = arena["version"][0]


def range_of(pool: Sequence[Share]) -> GroupRange:
    """Return the range of groups of some workers. Their shares must be contiguous."""
    return GroupRange(pool[0].first_group, sum(share.groups for share in pool))

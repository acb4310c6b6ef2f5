"""The arrays that the driver and the nodes of a Ray cluster exchange, for algorithms that learn from rollouts.

down   weights, observation statistics, odds of opponents    once per version, the same for all nodes
       weights of opponents                                  when the opponents change
       episode numbers                                       before envs start or restore episodes on a node
up     the slots of a node's groups, with the final observations of truncated episodes
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.memory.opponent_pool import OpponentPool
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_copies import parts_of
from paceline.memory.slots import Slots
from paceline.memory.weights import Snapshots
from paceline.memory.worker_status import NOT_FINITE
from paceline.runtime.protocol import J_co, Program, Share
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange
from paceline.train.worker_recipe import WorkerRecipe

WEIGHTS, POOL, EPISODES = "weights", "pool", "episodes"
"""Names of the loads: what acting needs, the opponents of self-play, and the episode numbers."""
EPISODE_CALLS = ("reset", "restore")
"""Calls that start or restore episodes."""
LEARNER_FIELDS = ("samples", "order", "grads", "terms", "learning/")
"""Prefixes of fields that only the learner uses: a node's arena has them, but reserves no memory for them."""


class NodePlan(Protocol[J_co]):
    """The methods of a plan that a transfer uses."""

    @property
    def base(self) -> WorkerRecipe:
        """See `Plan.base`."""

    def on_node(self, held: GroupRange) -> NodePlan[J_co]:
        """Return the same plan for the groups of one node."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""

    def __call__(self, arena: Arena, share: Share) -> J_co:
        """Build a worker's job."""


@dataclass(frozen=True, slots=True)
class RolloutTransfer(Generic[J_co]):
    """Transfer for synchronous rollouts. See `Transfer`."""

    plan: NodePlan[J_co]
    """The plan of the driver."""
    weights: int
    """Number of parameters."""
    acting: str = ""
    """Prefix of the fields that workers act with: empty except in a pipeline."""

    def program(self, held: GroupRange) -> Program[J_co]:
        """See `Transfer.program`."""
        return self.plan.on_node(held)

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        """See `Transfer.fields`."""
        fields = self.plan.on_node(held).fields(self.weights, workers)
        return [replace(one, sparse=one.sparse or one.name.startswith(LEARNER_FIELDS)) for one in fields]

    def loads(self, command: str) -> tuple[str, ...]:
        """See `Transfer.loads`."""
        return loads_of(self.plan.base, command)

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """See `Transfer.token`: the weights are sent with every call, because the update before it has changed them."""
        return token_of(load, arena, command)

    def down(self, load: str, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """See `Transfer.down`."""
        if load == POOL:
            yield from snapshots_down(arena)
        elif load == EPISODES:
            yield from episodes_down(self.plan.base, arena, held, pool)
        else:
            yield from self._weights_down(arena, node=held is not None)

    def _weights_down(self, arena: Arena, *, node: bool) -> Iterator[NDArray[Any]]:
        version = arena["version"].copy()
        yield version
        for name in self.plan.base.acting_names():
            yield arena[name if node else self.acting + name]
        if self.plan.base.league is not None:
            yield from odds_down(arena)
        if node:
            self.arrived(arena, int(version[0]))
            arena["version"][:] = version

    def arrived(self, arena: Arena, version: int) -> None:
        """Called on a node when weights of `version` are in the arena. Does nothing: workers read them in place."""

    def up(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
    ) -> Iterator[NDArray[Any]]:
        """See `Transfer.up`."""
        if call.command not in (*EPISODE_CALLS, "collect"):
            return
        base, mine = (self.plan if held is None else self.plan.on_node(held)).base, range_of(pool)
        if call.command == "collect":
            yield from parts_of(self.filled(arena, base, call), *mine)
        else:
            yield from self.shown(arena, base, mine)
        yield from episodes_up(base, arena, mine)
        yield from not_finite_up(arena, pool)

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
        return own_histories(args, pool, self.plan.base.shape.group_size) if command == "restore" else args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """See `Transfer.posted`: there is nothing to record."""


class SlotTransfer(RolloutTransfer[J_co]):
    """Transfer for asynchronous rollouts: each worker fills slots with the newest weights that its node has."""

    __slots__ = ()

    def token(self, load: str, arena: Arena, command: int) -> Hashable:  # noqa: ARG002 - sent once per version
        """See `Transfer.token`: weights are sent once per version."""
        return token_of(load, arena, int(arena["version"][0]))

    def arrived(self, arena: Arena, version: int) -> None:
        """Called on a node when weights of `version` are in the arena. Writes the snapshot that workers copy."""
        Snapshots(arena, self.plan.base.acting_names()).write(version)

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


def episodes_down(
    base: WorkerRecipe, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
) -> Iterator[NDArray[Any]]:
    """List the episode numbers and tags of all envs. A node copies those of the workers that the call is for."""
    if held is None:
        yield arena["episode"]
        yield from base.tags(arena).values()
        return
    envs, size = base.shape.n_envs, base.shape.group_size
    called = range_of(pool)
    in_run = slice(called.first_group * size, (called.first_group + called.groups) * size)
    on_node = replace(base.shape, first_group=held.first_group, groups=held.groups).columns(*called)
    episode = np.empty(envs, np.int64)
    yield episode
    arena["episode"][on_node] = episode[in_run]
    for tag in base.tags(arena).values():
        received = np.empty((envs, *tag.shape[1:]), tag.dtype)
        yield received
        tag[in_run] = received[in_run]


def loads_of(base: WorkerRecipe, command: str) -> tuple[str, ...]:
    """Return the names of the loads that workers need before a call. See `Transfer.loads`."""
    acting = (WEIGHTS, POOL) if base.league is not None else (WEIGHTS,)
    if command in EPISODE_CALLS:
        return (EPISODES, *acting)
    return acting if command == "collect" else ()


def token_of(load: str, arena: Arena, weights: int) -> Hashable:
    """Return the token of a load. See `Transfer.token`.

    Args:
        load: Name of the load.
        arena: The arena of the driver.
        weights: The token of the load `WEIGHTS`.
    """
    if load == WEIGHTS:
        return weights
    return arena["pool/born"].tobytes() if load == POOL else None


def not_finite_up(arena: Arena, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
    """List the counts of NaN and infinite values that these workers have found."""
    for share in pool:
        yield arena["heartbeat"][share.worker, NOT_FINITE : NOT_FINITE + 1]


def episodes_up(base: WorkerRecipe, arena: Arena, mine: GroupRange) -> Iterator[NDArray[Any]]:
    """List the episode numbers and tags of some groups.

    Args:
        base: The recipe of this side.
        arena: The arena of this side.
        mine: The groups.
    """
    yield arena["episode"][base.shape.columns(*mine)]
    size = base.shape.group_size
    for tag in base.tags(arena).values():  # indexed by the env's number in the whole run, on both sides
        yield tag[mine.first_group * size : (mine.first_group + mine.groups) * size]


def snapshots_down(arena: Arena) -> Iterator[NDArray[Any]]:
    """List the weights of the snapshots in a league, and the number of each snapshot."""
    pool = OpponentPool(arena)
    yield pool.weights
    yield pool.born


def odds_down(arena: Arena) -> Iterator[NDArray[Any]]:
    """List the probability of each opponent, and the epsilon of snapshots."""
    pool = OpponentPool(arena)
    yield pool.odds
    yield pool.next_epsilon


def own_histories(args: tuple[Any, ...], pool: Sequence[Share], group_size: int) -> tuple[Any, ...]:
    """Return the arguments of `restore` with the histories of these workers' envs, and None for all other envs."""
    histories, *rest = args
    mine = range_of(pool)
    envs = range(mine.first_group * group_size, (mine.first_group + mine.groups) * group_size)
    return [history if env in envs else None for env, history in enumerate(histories)], *rest

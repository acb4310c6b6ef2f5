"""What travels between the driver and the nodes of a Ray cluster, for algorithms that learn from rollouts.

down   weights, observation statistics, opponents' odds      once per version, the same for all nodes
       episode numbers, opponents' weights                   before envs start episodes on a node
up     the slots of a node's groups, with as many last observations as there are
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
"""The loads: what acting needs, the opponents of self-play, and the episode numbers."""
BEGINNINGS = ("reset", "restore")
"""Calls that start or restore episodes."""
LEARNERS_OWN = ("samples", "order", "grads", "terms", "learning/")
"""Fields, by the start of their name, that a node's arena has but never uses: no memory is reserved for them."""


class NodePlan(Protocol[J_co]):
    """What a transfer uses of a plan: the plan of a node's workers, and what its arena holds."""

    @property
    def base(self) -> WorkerRecipe:
        """How a worker builds its envs and its policy."""

    def on_node(self, held: GroupRange) -> NodePlan[J_co]:
        """The same plan for the groups of one node."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """The fields of the arena."""

    def __call__(self, arena: Arena, share: Share) -> J_co:
        """Build a worker's job."""


@dataclass(frozen=True, slots=True)
class RolloutTransfer(Generic[J_co]):
    """One rollout of all groups at a time, with a barrier at its end."""

    plan: NodePlan[J_co]
    """The driver's."""
    weights: int
    """Number of parameters."""
    acting: str = ""
    """Prefix of the fields that workers act with: not empty in a pipeline."""

    def program(self, held: GroupRange) -> Program[J_co]:
        """See `Transfer.program`."""
        return self.plan.on_node(held)

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        """See `Transfer.fields`."""
        fields = self.plan.on_node(held).fields(self.weights, workers)
        return [replace(one, sparse=one.sparse or one.name.startswith(LEARNERS_OWN)) for one in fields]

    def loads(self, command: str) -> tuple[str, ...]:
        """See `Transfer.loads`."""
        return loads_of(self.plan.base, command)

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """See `Transfer.token`: workers at a barrier get the weights that are newest at each command."""
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
        """On a node: weights of `version` are in the arena. Workers read them in place."""

    def up(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
    ) -> Iterator[NDArray[Any]]:
        """See `Transfer.up`."""
        if call.command not in (*BEGINNINGS, "collect"):
            return
        base, mine = (self.plan if held is None else self.plan.on_node(held)).base, range_of(pool)
        if call.command == "collect":
            yield from parts_of(self.filled(arena, base, call), *mine)
        else:
            yield from self.shown(arena, base, mine)
        yield from episodes_up(base, arena, mine)
        yield from not_finite_up(arena, pool)

    def filled(self, arena: Arena, base: WorkerRecipe, call: ExecutedCall) -> Slots:  # noqa: ARG002 - there is one set of slots
        """The slots that a command filled."""
        return Slots(arena, base.shape)

    def shown(self, arena: Arena, base: WorkerRecipe, mine: GroupRange) -> Iterator[NDArray[Any]]:
        """The first observations of episodes: the driver records them before a rollout begins."""
        obs, mask = Slots(arena, base.shape).shown()
        for leaf in (*obs.values(), *(() if mask is None else (mask,))):
            yield leaf[base.shape.columns(*mine)]

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """See `Transfer.trimmed`: histories of these workers' envs only."""
        return own_histories(args, pool, self.plan.base.shape.group_size) if command == "restore" else args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """See `Transfer.posted`: nothing to record."""


class SlotTransfer(RolloutTransfer[J_co]):
    """Slots that each worker fills on its own, with the newest weights that it has."""

    __slots__ = ()

    def token(self, load: str, arena: Arena, command: int) -> Hashable:  # noqa: ARG002 - weights go by their version
        """See `Transfer.token`: weights are sent once per version."""
        return token_of(load, arena, int(arena["version"][0]))

    def arrived(self, arena: Arena, version: int) -> None:
        """On a node: workers make private copies from the snapshots."""
        Snapshots(arena, self.plan.base.acting_names()).write(version)

    def filled(self, arena: Arena, base: WorkerRecipe, call: ExecutedCall) -> Slots:
        """The set of slots that the command named."""
        return Slots(arena, base.shape, f"{call.args[1]}/")

    def shown(self, arena: Arena, base: WorkerRecipe, mine: GroupRange) -> Iterator[NDArray[Any]]:  # noqa: ARG002
        """Nothing: episodes under way are not kept."""
        return iter(())

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """See `Transfer.posted`: a slot that is ordered now is not collected with older weights than the newest."""
        if command == "collect":
            arena["begun_version"][worker, args[1]] = arena["version"][0]


def range_of(pool: Sequence[Share]) -> GroupRange:
    """The groups of some workers, which are one range."""
    return GroupRange(pool[0].first_group, sum(share.groups for share in pool))


def episodes_down(
    base: WorkerRecipe, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
) -> Iterator[NDArray[Any]]:
    """Where envs begin: the driver's view of all of them; a node takes those of the workers that are told."""
    if held is None:
        yield arena["episode"]
        yield from base.tags(arena).values()
        return
    envs, size = base.shape.n_envs, base.shape.group_size
    mine = range_of(pool)
    theirs = slice(mine.first_group * size, (mine.first_group + mine.groups) * size)
    here = replace(base.shape, first_group=held.first_group, groups=held.groups).columns(*mine)
    episode = np.empty(envs, np.int64)
    yield episode
    arena["episode"][here] = episode[theirs]
    for tag in base.tags(arena).values():
        room = np.empty((envs, *tag.shape[1:]), tag.dtype)
        yield room
        tag[theirs] = room[theirs]


def loads_of(base: WorkerRecipe, command: str) -> tuple[str, ...]:
    """What a command needs to be told first."""
    acting = (WEIGHTS, POOL) if base.league is not None else (WEIGHTS,)
    if command in BEGINNINGS:
        return (EPISODES, *acting)
    return acting if command == "collect" else ()


def token_of(load: str, arena: Arena, weights: int) -> Hashable:
    """What a load is known by: told once, it need not be told again; None is always told.

    Args:
        load: Which.
        arena: The driver's.
        weights: What weights are known by.
    """
    if load == WEIGHTS:
        return weights
    return arena["pool/born"].tobytes() if load == POOL else None


def not_finite_up(arena: Arena, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
    """What these workers note of numbers that are none."""
    for share in pool:
        yield arena["heartbeat"][share.worker, NOT_FINITE : NOT_FINITE + 1]


def episodes_up(base: WorkerRecipe, arena: Arena, mine: GroupRange) -> Iterator[NDArray[Any]]:
    """Which episodes some groups are at.

    Args:
        base: The program at this end.
        arena: The one at this end.
        mine: The groups.
    """
    yield arena["episode"][base.shape.columns(*mine)]
    size = base.shape.group_size
    for tag in base.tags(arena).values():  # by the env's number in the whole run, at both ends
        yield tag[mine.first_group * size : (mine.first_group + mine.groups) * size]


def snapshots_down(arena: Arena) -> Iterator[NDArray[Any]]:
    """The opponents of a league."""
    pool = OpponentPool(arena)
    yield pool.weights
    yield pool.born


def odds_down(arena: Arena) -> Iterator[NDArray[Any]]:
    """How often each of them is to be met."""
    pool = OpponentPool(arena)
    yield pool.odds
    yield pool.next_epsilon


def own_histories(args: tuple[Any, ...], pool: Sequence[Share], group_size: int) -> tuple[Any, ...]:
    """The arguments of `restore`, with the histories of these workers' envs and nothing in the place of others."""
    histories, *rest = args
    mine = range_of(pool)
    envs = range(mine.first_group * group_size, (mine.first_group + mine.groups) * group_size)
    return [history if env in envs else None for env, history in enumerate(histories)], *rest

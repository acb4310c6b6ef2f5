"""What travels between the driver and the nodes of a cluster, for algorithms that learn from rollouts.

down   weights, statistics of observations, who is met     once a version, the same for all nodes
       episode numbers, opponents                          before envs begin episodes there
up     the slots of a node's groups, and no more finals than there are
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.memory.opponent_pool import OpponentPool
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_copies import parts_of
from paceline.memory.slots import Slots
from paceline.memory.worker_status import NOT_FINITE
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import Did, Held
from paceline.train.async_program import AsyncProgram
from paceline.train.program import ACTING, LEARNING, WorkerProgram

WEIGHTS, POOL, EPISODES = "weights", "pool", "episodes"
"""What is told: what acting needs, the snapshots of a league, and where envs begin."""
BEGINNINGS = ("reset", "restore")
"""Commands with which envs begin, or go back to, an episode."""
LEARNERS_OWN = ("samples", "order", "grads", "terms", LEARNING)
"""Fields, by how they begin, that nodes have and do not use: no memory is reserved for them."""


@dataclass(frozen=True, slots=True)
class RolloutTransfer:
    """Of `WorkerProgram` and `AsyncProgram`."""

    here: WorkerProgram | AsyncProgram
    """The driver's."""
    weights: int
    """Parameters."""

    def program(self, held: Held) -> WorkerProgram | AsyncProgram:
        """The same for some of the groups, and without learning."""
        shape = replace(self.here.base.shape, first_group=held.first_group, groups=held.groups)
        base = replace(self.here.base, shape=shape, pipeline=False, shards=1, compiled_rows=None)
        return replace(self.here, base=base, batch_groups=1) if isinstance(self.here, AsyncProgram) else base

    def fields(self, held: Held, workers: int) -> list[Field]:
        """What they need of an arena."""
        fields = self.program(held).fields(self.weights, workers)
        return [replace(one, sparse=one.sparse or one.name.startswith(LEARNERS_OWN)) for one in fields]

    def loads(self, command: str) -> tuple[str, ...]:
        """By command."""
        return loads_of(self.here.base, command)

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        """Workers at a barrier get the weights of the command; others those of a version."""
        return token_of(load, arena, int(arena["version"][0]) if isinstance(self.here, AsyncProgram) else command)

    def down(self, load: str, arena: Arena, held: Held | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """What acting needs, or where envs begin."""
        if load == POOL:
            yield from snapshots_down(arena)
        elif load == EPISODES:
            yield from episodes_down(self.here.base, arena, held, pool)
        else:
            yield from self._acting_down(arena, node=held is not None)

    def _acting_down(self, arena: Arena, *, node: bool) -> Iterator[NDArray[Any]]:
        base = self.here.base
        version = arena["version"].copy()
        yield version
        for name in ("weights", *(field.name for field in base.norms())):
            yield arena[name if node or not base.pipeline else ACTING + name]
        if base.league is not None:
            yield from odds_down(arena)
        if node:
            if isinstance(self.here, AsyncProgram):
                self.here.snapshots(arena).write(int(version[0]))
            arena["version"][:] = version

    def up(self, did: Did, arena: Arena, held: Held | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        """What was collected, or what the envs show."""
        if did.command not in (*BEGINNINGS, "collect"):
            return
        program = self.here if held is None else self.program(held)
        base, mine = program.base, range_of(pool)
        if isinstance(program, AsyncProgram):
            if did.command == "collect":
                yield from parts_of(Slots(arena, base.shape, f"{did.args[1]}/"), *mine)
        elif did.command == "collect":
            yield from parts_of(Slots(arena, base.shape), *mine)
        else:
            obs, mask = Slots(arena, base.shape).shown()
            for shown in (*obs.values(), *(() if mask is None else (mask,))):
                yield shown[base.shape.columns(*mine)]
        yield from episodes_up(base, arena, mine)
        yield from not_finite_up(arena, pool)

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        """Histories of these workers' envs only."""
        return own_histories(args, pool, self.here.base.shape.group_size) if command == "restore" else args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        """A slot that is ordered now will not be collected with older weights than these."""
        if command == "collect" and isinstance(self.here, AsyncProgram):
            arena["begun_version"][worker, args[1]] = arena["version"][0]


def range_of(pool: Sequence[Share]) -> Held:
    """The groups of some workers, which are one range."""
    return Held(pool[0].first_group, sum(share.groups for share in pool))


def episodes_down(
    base: WorkerProgram, arena: Arena, held: Held | None, pool: Sequence[Share]
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


def loads_of(base: WorkerProgram, command: str) -> tuple[str, ...]:
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


def episodes_up(base: WorkerProgram, arena: Arena, mine: Held) -> Iterator[NDArray[Any]]:
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

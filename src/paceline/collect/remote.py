"""The policy of somebody else's: a worker shows what its envs show, and is told what the policy makes of it.

envs.step -> obs into the arena -> ask ... meanwhile other envs are stepped ... -> params, value from the arena
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.collect.rollout import RolloutCollector
from paceline.collect.times import CollectTimes
from paceline.envs.block import History
from paceline.memory.shared import Arrays, Field
from paceline.nets.features import Leaves
from paceline.spec import EnvSpec

PREFIX = "central/"


def mailbox_fields(spec: EnvSpec, n_envs: int) -> Iterator[Field]:
    """What an arena must hold for the questions and answers of all envs."""
    for leaf in spec.obs:
        yield Field.of(f"{PREFIX}obs/{leaf.name}", (n_envs, *leaf.shape), leaf.dtype)
    yield Field.of(f"{PREFIX}params", (n_envs, spec.action.param_size), np.float32)
    yield Field.of(f"{PREFIX}value", (n_envs,), np.float32)


class Asking(Protocol):
    """Takes questions to whoever answers them."""

    def ask(self, lane: int, server: int) -> None:
        """The lane's question is in the arena."""

    def wait(self, lane: int) -> float:
        """Return when its answer is; how many seconds nothing was done for that."""

    def end(self, lane: int, server: int) -> None:
        """The lane will ask nothing more for now."""


@dataclass(frozen=True, slots=True)
class LaneShare:
    """Envs that ask together: whole groups of one worker."""

    worker: int
    first_group: int
    """Also its number: no two lanes have the same."""
    groups: int
    chunk: int
    """Groups that a forward takes in together, in the order of groups."""


def lanes_of(worker: int, first_group: int, groups: int, chunk_groups: int, *, single: bool = False) -> list[LaneShare]:
    """Cut what a worker owns at the borders of chunks.

    Args:
        worker: Which.
        first_group: Its first.
        groups: How many it owns.
        chunk_groups: Groups of a chunk.
        single: Whether every group asks by itself.
    """
    lanes, at, end = [], first_group, first_group + groups
    while at < end:
        chunk = at // chunk_groups
        stop = at + 1 if single else min(end, (chunk + 1) * chunk_groups)
        lanes.append(LaneShare(worker, at, stop - at, chunk))
        at = stop
    return lanes


class Mailbox:
    """Some envs' part of the arena's questions and answers.

    Args:
        arena: Holds `mailbox_fields`.
        spec: Of the envs.
        columns: Which envs.
    """

    def __init__(self, arena: Arrays, spec: EnvSpec, columns: slice) -> None:
        self.obs = {leaf.name: arena[f"{PREFIX}obs/{leaf.name}"][columns] for leaf in spec.obs}
        self.params: NDArray[np.float32] = arena[f"{PREFIX}params"][columns]
        self.value: NDArray[np.float32] = arena[f"{PREFIX}value"][columns]


class RemoteActor:
    """An `Actor` that asks.

    Args:
        lane: Whose questions.
        server: Who answers.
        mailbox: The lane's.
    """

    def __init__(self, lane: LaneShare, server: int, mailbox: Mailbox) -> None:
        self._lane, self._server, self._mailbox = lane.first_group, server, mailbox
        self._asked, self._waited_s = False, 0.0
        self.asker: Asking | None = None
        """Set before the first question."""

    def ask(self, obs: Leaves) -> None:
        """Ask; the answer is the next call's result."""
        for name, leaf in self._mailbox.obs.items():
            leaf[...] = obs[name]
        self._connected().ask(self._lane, self._server)
        self._asked = True

    def __call__(self, obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What the policy makes of `obs`, which may have been asked already."""
        if not self._asked:
            self.ask(obs)
        self._waited_s += self._connected().wait(self._lane)
        self._asked = False
        return self._mailbox.params, self._mailbox.value

    def waited_s(self) -> float:
        """Seconds of doing nothing but wait since this was last asked."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def rest(self) -> None:
        """Ask nothing more for now."""
        self._connected().end(self._lane, self._server)

    def _connected(self) -> Asking:
        if self.asker is None:
            raise RuntimeError("a remote actor was used before it was connected")
        return self.asker


class InterleavedCollectors:
    """Several collectors of one worker: while one waits for its actions or its envs, the next does something.

    Args:
        collectors: One per lane.
        actors: Theirs, where they ask somebody else.
    """

    def __init__(self, collectors: Sequence[RolloutCollector], actors: Sequence[RemoteActor] = ()) -> None:
        self._collectors, self._actors = collectors, actors

    def connect(self, asker: Asking) -> None:
        """Whom to ask."""
        for actor in self._actors:
            actor.asker = asker

    def reset(self) -> None:
        """Begin every env's first episode."""
        for collector in self._collectors:
            collector.reset()

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Put every env where it was; returns those that began a new episode."""
        return [env for collector in self._collectors for env in collector.restore(histories)]

    def dump(self) -> list[bytes]:
        """The envs as they are, pickled; one entry per env."""
        return [entry for collector in self._collectors for entry in collector.dump()]

    def collect(self, step: int, into: int = 0) -> CollectTimes:
        """Fill all slots of set `into`, a row of each lane in turn."""
        began, env_s = perf_counter(), 0.0
        going: list[Any] = [collector.rows(step, into) for collector in self._collectors]
        while going:
            for rows in list(going):
                try:
                    next(rows)
                except StopIteration as done:
                    env_s += done.value
                    going.remove(rows)
        total_s, waiting_s = perf_counter() - began, sum(actor.waited_s() for actor in self._actors)
        return CollectTimes(env_s=env_s, inference_s=total_s - env_s, total_s=total_s, waiting_s=waiting_s)

    def close(self) -> None:
        """Close the envs."""
        for collector in self._collectors:
            collector.close()


AnyCollector: TypeAlias = RolloutCollector | InterleavedCollectors
"""What fills a worker's slots."""


def connect(collector: AnyCollector, asker: Asking) -> None:
    """Tell a collector whom to ask, if it asks."""
    if isinstance(collector, InterleavedCollectors):
        collector.connect(asker)

"""Client side of central inference: a worker sends observations to the process that runs the policy, and gets actions.

envs.step -> write obs to the arena -> request ... step other lanes meanwhile ... -> read params, value from the arena
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.collect.rollout import RolloutCollector
from paceline.collect.times import CollectTimes
from paceline.envs.block import History
from paceline.memory.shared import Arrays, Field
from paceline.nets.features import Leaves
from paceline.runtime.protocol import InferenceChannel
from paceline.spec import EnvSpec

PREFIX = "central/"


def mailbox_fields(spec: EnvSpec, n_envs: int) -> Iterator[Field]:
    """Arena fields for the inference requests (observations) and replies (params, values) of all envs."""
    for leaf in spec.obs:
        yield Field.of(f"{PREFIX}obs/{leaf.name}", (n_envs, *leaf.shape), leaf.dtype)
    yield Field.of(f"{PREFIX}params", (n_envs, spec.action.param_size), np.float32)
    yield Field.of(f"{PREFIX}value", (n_envs,), np.float32)


@dataclass(frozen=True, slots=True)
class LaneShare:
    """One lane: whole groups of one worker that share one inference request."""

    worker: int
    first_group: int
    """Also the lane's number, since no two lanes have the same first group."""
    groups: int
    chunk: int
    """Number of the chunk, i.e. of the groups that share one forward pass; counted in group order."""


def lanes_of(worker: int, first_group: int, groups: int, chunk_groups: int, *, single: bool = False) -> list[LaneShare]:
    """Split a worker's groups into lanes at the chunk boundaries.

    Args:
        worker: Index of the worker.
        first_group: Its first group.
        groups: Number of groups it owns.
        chunk_groups: Groups per chunk.
        single: Make every group a lane of its own.
    """
    lanes, at, end = [], first_group, first_group + groups
    while at < end:
        chunk = at // chunk_groups
        stop = at + 1 if single else min(end, (chunk + 1) * chunk_groups)
        lanes.append(LaneShare(worker, at, stop - at, chunk))
        at = stop
    return lanes


class Mailbox:
    """Views of the arena's request and reply fields for some envs.

    Args:
        arena: Holds `mailbox_fields`.
        spec: Spec of the envs.
        columns: The envs.
    """

    def __init__(self, arena: Arrays, spec: EnvSpec, columns: slice) -> None:
        self.obs = {leaf.name: arena[f"{PREFIX}obs/{leaf.name}"][columns] for leaf in spec.obs}
        self.params: NDArray[np.float32] = arena[f"{PREFIX}params"][columns]
        self.value: NDArray[np.float32] = arena[f"{PREFIX}value"][columns]


class RemoteActor:
    """An `Actor` that sends each forward pass to an inference server.

    Args:
        lane: The lane that it acts for.
        server: Index of the server.
        mailbox: The lane's request and reply arrays.
    """

    def __init__(self, lane: LaneShare, server: int, mailbox: Mailbox) -> None:
        self._lane, self._server, self._mailbox = lane.first_group, server, mailbox
        self._asked, self._waited_s = False, 0.0
        self.channel: InferenceChannel | None = None
        """The connection to the server; must be set before the first request."""

    def ask(self, obs: Leaves) -> None:
        """Send a request without waiting; the next call of the actor returns the reply."""
        for name, leaf in self._mailbox.obs.items():
            leaf[...] = obs[name]
        self._connected().ask(self._lane, self._server)
        self._asked = True

    def __call__(self, obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return params and values for `obs`. Blocks for the reply; sends the request first if `ask` has not."""
        if not self._asked:
            self.ask(obs)
        self._waited_s += self._connected().wait(self._lane)
        self._asked = False
        return self._mailbox.params, self._mailbox.value

    def waited_s(self) -> float:
        """Seconds idle waiting for replies since the last call of this method."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s

    def rest(self) -> None:
        """Notify the server that no more requests come in this rollout."""
        self._connected().end(self._lane, self._server)

    def _connected(self) -> InferenceChannel:
        if self.channel is None:
            raise RuntimeError("remote actor: has no connection to an inference server yet. Call connect() first.")
        return self.channel


class InterleavedCollectors:
    """Runs the collectors of a worker's lanes in turn: while one waits for the policy or its envs, the next one runs.

    Args:
        collectors: One per lane.
        actors: Their actors, with central inference.
    """

    def __init__(self, collectors: Sequence[RolloutCollector], actors: Sequence[RemoteActor] = ()) -> None:
        self._collectors, self._actors = collectors, actors

    def connect(self, channel: InferenceChannel) -> None:
        """Set the connection to the inference servers."""
        for actor in self._actors:
            actor.channel = channel

    def reset(self) -> None:
        """Reset every env to its first episode."""
        for collector in self._collectors:
            collector.reset()

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Restore every env from its history; returns the envs that started a new episode instead."""
        return [env for collector in self._collectors for env in collector.restore(histories)]

    def dump(self) -> list[bytes]:
        """Pickle the envs in their current state; one entry per env."""
        return [entry for collector in self._collectors for entry in collector.dump()]

    def collect(self, step: int, into: int = 0) -> CollectTimes:
        """Fill all slots of set `into`, one row per lane in turn."""
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
"""The collector of a worker."""


def connect(collector: AnyCollector, channel: InferenceChannel) -> None:
    """Connect a collector to the inference servers, if it uses central inference."""
    if isinstance(collector, InterleavedCollectors):
        collector.connect(channel)

"""Asynchronous workers that fill their slots when a test calls `done`, and a collector for them."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from paceline.collect.times import CollectTimes
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.runtime.protocol import Reply, shares
from paceline.spec import EnvSpec
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.restarts import Restarts
from paceline.train.slot_scheduler import SlotReport, SlotScheduler

STEPS, SIZE = 4, 2


class ScriptedRuntime:
    """A runtime without processes: the test says when a worker begins and fills a slot."""

    def __init__(self, workers: int, begun: Any, fill: Any) -> None:
        self.num_workers, self._begun, self._fill = workers, begun, fill
        self.requests: list[deque[tuple[int, int]]] = [deque() for _ in range(workers)]
        self._replies: list[deque[Reply[Any]]] = [deque() for _ in range(workers)]
        self.script: deque[Any] = deque()
        self.respawned: list[int] = []

    def submit(self, worker: int, call: Any, *args: int) -> Reply[Any]:
        reply: Reply[Any] = Reply(worker, call.__name__)
        if reply.name == "reset":
            reply.put(None)
        else:
            step, into = args
            self.requests[worker].append((step, into))
            self._replies[worker].append(reply)
        return reply

    def begin(self, worker: int, version: int) -> None:
        """Let a worker begin its next slot with the weights of `version`."""
        self._begun[worker, self.requests[worker][0][1]] = version

    def done(self, worker: int, version: int) -> None:
        """Let a worker fill its next slot and reply."""
        _, into = self.requests[worker].popleft()
        self._fill(worker, into)
        collected = SlotReport(into=into, version=version, times=CollectTimes(1.0, 1.0, 2.0))
        self._replies[worker].popleft().put(collected)

    def wait(self, replies: list[Reply[Any]], *, all: bool, timeout_s: float = 0.0) -> list[Reply[Any]]:  # noqa: A002
        if self.script:
            self.script.popleft()()
        found = [reply for reply in replies if reply.done]
        assert found, "the collector waits for a reply that the test does not give"
        return found

    def respawn(self, worker: int, call: Any) -> None:
        self.respawned.append(worker)
        self.requests[worker].clear()
        self._replies[worker].clear()


class Stage:
    def __init__(
        self, spec: EnvSpec, workers: int = 2, groups: int = 2, sets: int = 2, *, start: bool = True, **settings: Any
    ) -> None:
        shape = SlotShape(spec, STEPS, groups, SIZE)
        self.sets = [_slots(shape) for _ in range(sets)]
        owned = shares(groups, workers)
        room = SlotShape(spec, STEPS, max(s.groups for s in owned) * settings["batch_slots"], SIZE)
        self.begun = np.zeros((workers, sets), np.int64)
        self.episode = np.zeros(groups * SIZE, np.int64)
        self.tracker = EpisodeTracker(groups * SIZE)
        self.workers = ScriptedRuntime(workers, self.begun, self._fill)
        runtime: Any = self.workers
        self.scheduler = SlotScheduler(
            Restarts(runtime), self.sets, self.begun, self.episode, self.tracker, lambda: None
        )
        self.rollouts = AsyncRollouts(self.scheduler, _slots(room), Clock(), **settings)
        self.rollouts.reset()
        if start:
            self.scheduler.start()
        self._owned, self._filled = owned, 0

    def _fill(self, worker: int, into: int) -> None:
        """Write the number of the slot, in order of filling, as its rewards."""
        self._filled += 1
        share, slots = self._owned[worker], self.sets[into]
        mine = slice(share.first_group * SIZE, (share.first_group + share.groups) * SIZE)
        slots.arrays["reward"][:, mine] = self._filled
        slots.arrays["valid"][:, mine] = True

    def check(self) -> None:
        """Every collected step is either learned from or dropped."""
        assert self.rollouts.learned_steps + self.rollouts.dropped_steps == self.tracker.steps


def _slots(shape: SlotShape) -> Slots:
    return Slots({field.name: np.zeros(field.shape, field.dtype) for field in shape.fields()}, shape)

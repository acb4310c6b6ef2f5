"""Batches of what is ready first, and what becomes of slots that are too old: with workers that do as the test says."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from paceline.collect.times import CollectTimes
from paceline.errors import WorkerDied
from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.runtime.protocol import Reply, shares
from paceline.spec import EnvSpec
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.slot_scheduler import SlotReport, SlotScheduler

STEPS, SIZE = 4, 2


class Puppets:
    """A runtime whose workers fill a slot when the test lets them."""

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
        """The worker begins its next slot."""
        self._begun[worker, self.requests[worker][0][1]] = version

    def done(self, worker: int, version: int) -> None:
        """The worker has filled its next slot."""
        _, into = self.requests[worker].popleft()
        self._fill(worker, into)
        collected = SlotReport(into=into, version=version, times=CollectTimes(1.0, 1.0, 2.0))
        self._replies[worker].popleft().put(collected)

    def wait(self, replies: list[Reply[Any]], *, all: bool, timeout_s: float) -> list[Reply[Any]]:  # noqa: A002
        if self.script:
            self.script.popleft()()
        found = [reply for reply in replies if reply.done]
        assert found, "waits for ever"
        return found

    def respawn(self, worker: int, call: Any) -> None:
        self.respawned.append(worker)
        self.requests[worker].clear()
        self._replies[worker].clear()


class Stage:
    def __init__(self, spec: EnvSpec, workers: int = 2, groups: int = 2, sets: int = 2, **settings: Any) -> None:
        shape = SlotShape(spec, STEPS, groups, SIZE)
        self.sets = [_slots(shape) for _ in range(sets)]
        owned = shares(groups, workers)
        room = SlotShape(spec, STEPS, max(s.groups for s in owned) * settings["batch_slots"], SIZE)
        self.begun = np.zeros((workers, sets), np.int64)
        self.episode = np.zeros(groups * SIZE, np.int64)
        self.tracker = EpisodeTracker(groups * SIZE)
        self.workers = Puppets(workers, self.begun, self._fill)
        runtime: Any = self.workers
        self.scheduler = SlotScheduler(runtime, self.sets, owned, self.begun, self.episode, self.tracker, lambda: None)
        self.rollouts = AsyncRollouts(self.scheduler, _slots(room), Clock(), **settings)
        self.rollouts.reset()
        self._owned, self._filled = owned, 0

    def _fill(self, worker: int, into: int) -> None:
        """Rewards tell which slot it is."""
        self._filled += 1
        share, slots = self._owned[worker], self.sets[into]
        mine = slice(share.first_group * SIZE, (share.first_group + share.groups) * SIZE)
        slots.array("reward")[:, mine] = self._filled
        slots.array("valid")[:, mine] = True

    def check(self) -> None:
        assert self.rollouts.learned_steps + self.rollouts.dropped_steps == self.tracker.steps


def _slots(shape: SlotShape) -> Slots:
    return Slots({field.name: np.zeros(field.shape, field.dtype) for field in shape.fields()}, shape)


@pytest.fixture
def spec() -> EnvSpec:
    import gymnasium as gym

    return EnvSpec.of(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))


def test_every_worker_has_all_its_slots_ordered_and_steps_go_on(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=2, max_lag=9)
    assert [list(requests) for requests in stage.workers.requests] == [[(0, 0), (STEPS, 1)]] * 2
    stage.workers.done(0, 0)
    stage.workers.done(0, 0)
    batch = stage.rollouts.next(0)
    assert batch.reward[0].tolist() == [1, 1, 2, 2]
    assert not stage.workers.requests[0], "slots are ordered anew after they were learned from"
    stage.rollouts.release()
    assert list(stage.workers.requests[0]) == [(2 * STEPS, 0), (3 * STEPS, 1)]
    stage.check()


def test_first_ready_is_first_learned_and_a_slow_worker_delays_nobody(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=9, on_lag="drop")
    stage.workers.begin(1, 0)  # and is never done
    for version in range(5):
        stage.workers.begin(0, version)
        stage.workers.done(0, version)
        assert stage.rollouts.next(version).version == version
        stage.rollouts.release()
    assert stage.rollouts.learned_steps == 5 * STEPS * SIZE


def test_stalling_waits_for_the_slot_that_would_become_too_old(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=2)
    stage.workers.begin(1, 0)
    for version in range(2):
        stage.workers.done(0, version)
        stage.rollouts.next(version)
        stage.rollouts.release()
    stage.workers.done(0, 2)
    # After this batch version 3 is next, and the slot of worker 1 would be 3 updates old.
    stage.workers.script.append(lambda: None)
    stage.workers.script.append(lambda: stage.workers.done(1, 0))
    batch = stage.rollouts.next(2)
    assert batch.version == 0, "the oldest first"
    assert stage.rollouts.last.lags == [2]
    stage.check()


@pytest.mark.parametrize("on_lag", ["stall", "drop"])
def test_what_is_too_old_all_the_same_is_left_out_counted_and_ordered_anew(spec: EnvSpec, on_lag: Any) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=2, on_lag=on_lag)
    stage.workers.done(1, 0)
    stage.workers.done(0, 5)
    batch = stage.rollouts.next(5)
    assert (batch.version, stage.rollouts.last.lags) == (5, [0])
    assert stage.rollouts.dropped_steps == STEPS * SIZE
    assert [into for _, into in stage.workers.requests[1]] == [1, 0]
    stage.check()


def test_masked_slots_take_their_place_and_count_for_nothing(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=2, max_lag=2, on_lag="mask")
    stage.workers.done(1, 0)
    stage.workers.done(0, 5)
    batch = stage.rollouts.next(5)
    assert batch.valid.sum(0).tolist() == [0, 0, STEPS, STEPS]
    assert (stage.rollouts.last.lags, stage.rollouts.dropped_steps) == ([0], STEPS * SIZE)
    stage.check()


def test_a_batch_of_masked_slots_alone_is_never_made(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=2, on_lag="mask")
    stage.workers.done(1, 0)
    stage.workers.script.append(lambda: stage.workers.done(0, 5))
    assert stage.rollouts.next(5).version == 5
    stage.check()


def test_workers_with_fewer_groups_leave_the_room_that_is_left_invalid(spec: EnvSpec) -> None:
    stage = Stage(spec, workers=2, groups=3, batch_slots=2, max_lag=9)
    stage.workers.done(1, 0)
    stage.workers.done(0, 0)
    batch = stage.rollouts.next(0)
    assert batch.valid.sum(0).tolist() == [STEPS] * 6 + [0] * 2
    stage.check()


def test_a_dead_worker_is_replaced_and_its_orders_are_given_again(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=9)

    def die() -> None:
        raise WorkerDied("worker 1 ended.", 1)

    stage.workers.begin(1, 0)
    stage.workers.script.append(die)
    stage.workers.script.append(lambda: stage.workers.done(1, 0))
    assert stage.rollouts.next(0).version == 0
    assert stage.workers.respawned == [1]
    assert [into for _, into in stage.workers.requests[1]] == [1]
    assert stage.episode.tolist() == [0, 0, 1, 1], "its envs begin new episodes"
    assert stage.rollouts.restarts.count == 1
    assert stage.rollouts.restarts.notes() == [
        ("worker 1 ended. It is replaced; training continues.", ""),
        ("worker 1: envs 2-3 began new episodes.", ""),
    ]
    assert stage.rollouts.restarts.notes() == []
    stage.check()


def test_times_and_episodes_are_of_all_slots_since_the_last_batch(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=2, max_lag=9)
    stage.workers.done(0, 0)
    stage.workers.done(0, 0)
    stage.rollouts.next(0)
    assert [times.total_s for times in stage.rollouts.last.times] == [4.0, 0.0]
    assert len(stage.rollouts.last.finished) == 0

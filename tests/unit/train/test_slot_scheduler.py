"""Requests for slots, and the replacement of lost workers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.train.scripted_workers import STEPS, Stage

from paceline.errors import WorkerDied
from paceline.spec import EnvSpec


@pytest.fixture
def spec() -> EnvSpec:
    import gymnasium as gym

    return EnvSpec.of(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))


def test_all_slots_of_every_worker_are_requested_with_increasing_steps(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=2, max_lag=9)
    assert [list(requests) for requests in stage.workers.requests] == [[(0, 0), (STEPS, 1)]] * 2
    stage.workers.done(0, 0)
    stage.workers.done(0, 0)
    batch = stage.rollouts.next(0)
    assert batch.reward[0].tolist() == [1, 1, 2, 2]
    assert not stage.workers.requests[0], "slots are requested again only after the update"
    stage.rollouts.release()
    assert list(stage.workers.requests[0]) == [(2 * STEPS, 0), (3 * STEPS, 1)]
    stage.check()


def test_no_slot_is_requested_before_the_first_batch(spec: EnvSpec) -> None:
    """So no step is taken during start-up: the first iteration would count its steps but not its time."""
    stage = Stage(spec, batch_slots=1, max_lag=9, start=False)
    assert [list(requests) for requests in stage.workers.requests] == [[], []]
    stage.workers.script.append(lambda: stage.workers.done(0, 0))
    stage.rollouts.next(0)
    assert [len(requests) for requests in stage.workers.requests] == [1, 2]


def test_a_dead_worker_is_replaced_and_its_requests_are_submitted_again(spec: EnvSpec) -> None:
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
        ("worker 1: envs 2-3 started new episodes.", ""),
    ]
    assert stage.rollouts.restarts.notes() == []
    stage.check()

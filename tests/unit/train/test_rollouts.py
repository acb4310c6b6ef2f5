"""The collector of synchronous rollouts: steps, episodes, the pipeline, checkpoints, and phases of the clock."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.unit.collect.histories import histories_now

from paceline.collect.history import EpisodeHistory
from paceline.collect.times import CollectTimes
from paceline.config.train_config import TrainConfig
from paceline.measure.clock import Clock
from paceline.memory.slot_shape import SlotShape
from paceline.spec import PLAIN, EnvSpec
from paceline.train.build import build
from paceline.train.restarts import Restarts
from paceline.train.rollout_job import RolloutJob
from paceline.train.rollouts import Rollouts, add_collect_times, add_waiting_time
from paceline.train.training import Training

STEPS, ENVS = 6, 4
SPEC = EnvSpec.of(gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Discrete(2))


def training(**settings: Any) -> Training:
    small: dict[str, Any] = {
        "env": "tests.games:Counter",
        "n_envs": ENVS,
        "n_steps": STEPS,
        "num_workers": 0,
        "quiet": True,
    }
    return build(TrainConfig.from_flat(**{**small, **settings}))


def collector(of: Training) -> Rollouts:
    assert isinstance(of.rollouts, Rollouts)
    return of.rollouts


def arrays(batch: Any) -> list[bytes]:
    return [np.asarray(part).tobytes() for part in (batch.obs["obs"], batch.action, batch.reward, batch.terminated)]


def test_a_rollout_has_the_version_of_its_weights_and_counts_steps_and_episodes() -> None:
    with closing(training()) as it:
        rollouts = collector(it)
        rollouts.reset()
        assert rollouts.next(7).version == 7
        rollouts.release()
        assert (rollouts.step, it.tracker.steps) == (STEPS, STEPS * ENVS)
        assert len(rollouts.last.finished) == ENVS, "episodes of Counter have 5 steps"
        rollouts.next(8)
        assert rollouts.step == 2 * STEPS


def test_a_pipeline_returns_the_rollout_before_and_collects_the_next_one() -> None:
    with closing(training(pipeline=True)) as it:
        rollouts = collector(it)
        rollouts.reset()
        first = rollouts.next(0)
        kept = arrays(first)
        rollouts.release()
        assert rollouts.step == 2 * STEPS, "the next rollout is complete after release"
        assert rollouts.next(1).version == 0, "it was collected before the update"
        rollouts.release()
        assert rollouts.next(2).version == 1
        assert kept != arrays(first), "batches are views of one copy"
        rollouts.release()


@pytest.mark.parametrize("pipeline", [False, True])
def test_a_loaded_collector_continues_with_the_same_rollouts(pipeline: bool) -> None:
    settings = {"pipeline": pipeline, "env": "CartPole-v1"}  # envs of Counter cannot be replayed
    with closing(training(**settings)) as one, closing(training(**settings)) as other:
        rollouts, resumed = collector(one), collector(other)
        rollouts.reset()
        rollouts.next(0)
        rollouts.release()
        assert resumed.load(rollouts.state()) == []
        assert resumed.step == rollouts.step
        for version in (1, 2):
            expected, found = rollouts.next(version), resumed.next(version)
            assert expected.version == found.version
            assert arrays(expected) == arrays(found)
            rollouts.release()
            resumed.release()


def test_the_wait_for_workers_is_divided_into_phases() -> None:
    clock = Clock()
    add_collect_times(clock, [CollectTimes(2.0, 1.0, 3.0), CollectTimes(4.0, 1.0, 5.0)], wall_s=6.0)
    before = clock.snapshot().seconds
    assert (before["env"], before["inference"], before["wait"]) == pytest.approx((3.0, 1.0, 2.0))
    add_collect_times(clock, [CollectTimes(3.0, 1.0, 4.0)], wall_s=2.0)  # half of it while the driver learned
    after = clock.snapshot().seconds
    assert (after["env"] - 3.0, after["inference"] - 1.0, after["wait"] - 2.0) == pytest.approx((1.5, 0.5, 0.0))


def test_the_wait_for_asynchronous_workers_is_no_work_of_the_driver() -> None:
    times, clock = [CollectTimes(2.0, 1.0, 3.0, learn_s=0.5)], Clock()
    add_waiting_time(clock, times, 4.0, workers=1)
    assert clock.snapshot().seconds == {"wait": 4.0}
    alone = Clock()
    add_waiting_time(alone, times, 4.0, workers=0)
    assert alone.snapshot().seconds == {"env": 2.0, "inference": 1.0, "learn": 0.5, "wait": 0.5}
    add_waiting_time(alone, [CollectTimes(0.0, 0.0, 0.0)], 1.0, workers=0)
    assert alone.snapshot().seconds["wait"] == 1.5, "every slot was full"


class Runtime:
    """Two workers; records the first call of each new one."""

    num_workers = 2

    def __init__(self) -> None:
        self.respawned: list[Any] = []

    def respawn(self, worker: int, call: Any, *args: Any) -> list[int]:
        self.respawned.append((worker, call, *args))
        return [5]


class Record:
    def __init__(self) -> None:
        self.forgotten: list[int] = []

    def forget(self, envs: list[int]) -> None:
        self.forgotten += envs


class Stage:
    """A collector of eight envs in four groups, whose history has three steps of each env."""

    def __init__(self) -> None:
        self.episode = np.arange(8)
        obs = {PLAIN: np.zeros((8, 1), np.float32)}
        self.history = EpisodeHistory(SPEC, self.episode, lambda: (obs, None))
        self.runtime, self.tracker, self.reward_norm = Runtime(), Record(), Record()
        runtime: Any = self.runtime
        slots: Any = SimpleNamespace(shape=SlotShape(SPEC, 3, 4, 2))
        tracker: Any = self.tracker
        norm: Any = self.reward_norm
        self.rollouts = Rollouts(Restarts(runtime), slots, tracker, self.history, Clock(), reward_norm=norm)
        self.history.extend(np.ones((3, 8), np.int64), np.zeros((3, 8), bool), np.ones((3, 8), bool))
        self.history.mark()


def test_a_new_worker_replays_the_episodes_up_to_the_mark() -> None:
    stage = Stage()
    stage.episode[:] = 99  # what the lost worker wrote after the mark
    assert stage.rollouts.respawn_restored(1) == [5]
    ((worker, call, histories),) = stage.runtime.respawned
    assert (worker, call) == (1, RolloutJob.restore)
    assert [(history.episode, len(history.actions)) for history in histories] == [(env, 3) for env in range(8)]


def test_a_reset_worker_starts_the_next_episodes_of_its_envs_only() -> None:
    stage = Stage()
    assert stage.rollouts.respawn_reset(1) == [4, 5, 6, 7]
    assert stage.runtime.respawned == [(1, RolloutJob.reset)]
    assert stage.episode.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]


def test_forgotten_episodes_are_cleared_everywhere() -> None:
    stage = Stage()
    stage.rollouts.forget_episodes([4, 6])
    assert stage.tracker.forgotten == stage.reward_norm.forgotten == [4, 6]
    assert [len(history.actions) for history in histories_now(stage.history)] == [3, 3, 3, 3, 0, 3, 0, 3]

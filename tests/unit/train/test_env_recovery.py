"""Restoring the envs of a lost worker in synchronous rollouts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from paceline.collect.history import EpisodeHistory
from paceline.memory.slot_shape import SlotShape
from paceline.spec import PLAIN, EnvSpec
from paceline.train.env_recovery import RolloutRecovery
from paceline.train.rollout_job import RolloutJob

SPEC = EnvSpec.of(gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Discrete(2))
ENVS = 8


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
    def __init__(self) -> None:
        self.episode = np.arange(ENVS)
        obs = {PLAIN: np.zeros((ENVS, 1), np.float32)}
        self.history = EpisodeHistory(SPEC, self.episode, lambda: (obs, None))
        self.runtime, self.record = Runtime(), Record()
        runtime: Any = self.runtime
        self.recovery = RolloutRecovery(self.history, [self.record, None], SlotShape(SPEC, 3, 4, 2), runtime)

    def extend(self) -> None:
        steps = np.ones((3, ENVS), np.int64)
        self.history.extend(steps, np.zeros((3, ENVS), bool), np.ones((3, ENVS), bool))


@pytest.fixture
def stage() -> Stage:
    it = Stage()
    it.extend()
    it.history.mark()
    return it


def test_a_new_worker_replays_the_episodes_up_to_the_mark(stage: Stage) -> None:
    stage.episode[:] = 99  # what the lost worker wrote after the mark
    assert stage.recovery.respawn_restored(1) == [5]
    ((worker, call, histories),) = stage.runtime.respawned
    assert (worker, call) == (1, RolloutJob.restore)
    assert [(history.episode, len(history.actions)) for history in histories] == [(env, 3) for env in range(ENVS)]


def test_a_reset_worker_starts_the_next_episodes_of_its_envs_only(stage: Stage) -> None:
    assert stage.recovery.respawn_reset(1) == [4, 5, 6, 7]
    assert stage.runtime.respawned == [(1, RolloutJob.reset)]
    assert stage.episode.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]


def test_forgotten_episodes_are_cleared_everywhere(stage: Stage) -> None:
    stage.recovery.forget_episodes([4, 6])
    assert stage.record.forgotten == [4, 6]
    assert [len(history.actions) for history in stage.history.snapshot()] == [3, 3, 3, 3, 0, 3, 0, 3]

"""CPU and memory of a run's processes, and the memory peaks of its workers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.memory.worker_status import MEMORY
from paceline.train.run_usage import RunUsage


class Runtime:
    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids

    def pids(self) -> Sequence[int]:
        return self._pids


class Training:
    """What `RunUsage` reads of a training."""

    def __init__(self, pids: Sequence[int], workers: int, ray_address: str | None = None) -> None:
        on_ray = {} if ray_address is None else {"runtime": "ray", "ray_address": ray_address}
        self.config = TrainConfig.from_flat(env="CartPole-v1", **on_ray)
        self.arena = {"heartbeat": np.zeros((workers, 16), np.int64)}
        self.runtime, self.layout = Runtime(pids), self
        self.num_workers = workers


def usage_of(training: Any) -> RunUsage:
    return RunUsage(training)


def test_a_process_of_the_run_has_its_memory_in_its_line() -> None:

    training = Training([os.getpid()], 1)
    usage = usage_of(training)
    assert training.arena["heartbeat"][0, MEMORY] > 1024
    assert usage.worker_peak_mb == [round(training.arena["heartbeat"][0, MEMORY] / 1024, 1)]


def test_the_peak_stays_when_a_worker_needs_less() -> None:
    training = Training([], 2)
    usage = usage_of(training)
    for megabytes in ((50, 10), (20, 30)):
        training.arena["heartbeat"][:, MEMORY] = np.array(megabytes) * 1024
        usage.sample()
    assert usage.worker_peak_mb == [50.0, 30.0]


@pytest.mark.parametrize("ray_address", [None, "auto"])
def test_the_memory_of_workers_on_other_machines_is_added(ray_address: str | None) -> None:
    training = Training([], 2, ray_address)
    usage = usage_of(training)
    alone = usage.sample(force=True).memory_mb
    training.arena["heartbeat"][:, MEMORY] = 1_000_000 * 1024
    more = usage.sample(force=True).memory_mb - alone
    assert (more > 1_900_000) == (ray_address is not None)

"""Numbers about workers for the record: percentiles of the lag, times and memory per worker."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.collect.times import CollectTimes
from paceline.measure.machine import ProcessUsage, Usage
from paceline.measure.record import WorkerActivity
from paceline.memory.worker_status import MEMORY
from paceline.train.activity import activity, lag_percentiles


def test_lag_percentiles_weigh_each_lag_by_its_number_of_slots() -> None:
    found = lag_percentiles(Counter({0: 50, 3: 1, 1: 41, 2: 8}))
    assert found == {"mean": pytest.approx((41 + 16 + 3) / 100), "p50": 0.0, "p90": 1.0, "p99": 2.0, "max": 3.0}


def test_lag_percentiles_are_lags_that_occurred() -> None:
    found = lag_percentiles(Counter({0: 1, 10: 1}))
    assert {found["p50"], found["p90"], found["p99"]} <= {0.0, 10.0}


def test_without_slots_the_lag_is_zero() -> None:
    assert set(lag_percentiles(Counter()).values()) == {0.0}


def training(times: list[CollectTimes], pids: list[int], memory_mb: list[float]) -> Any:
    lines = np.zeros((len(memory_mb), 8), np.int64)
    lines[:, MEMORY] = 1024 * np.array(memory_mb)
    return SimpleNamespace(
        rollouts=SimpleNamespace(last=SimpleNamespace(times=times)),
        runtime=SimpleNamespace(pids=lambda: pids),
        arena={"heartbeat": lines},
    )


def usage(**each: ProcessUsage) -> Usage:
    return Usage(0.0, 0.0, {int(pid.removeprefix("pid")): used for pid, used in each.items()})


def test_activity_combines_the_times_of_each_worker_with_the_usage_of_its_process() -> None:
    times = [
        CollectTimes(env_s=3.0, inference_s=2.0, total_s=5.0, learn_s=0.5, waiting_s=1.5),
        CollectTimes(env_s=1.0, inference_s=1.0, total_s=2.0),
    ]
    used = usage(pid21=ProcessUsage(cpu_percent=90.0, memory_mb=200.0), pid20=ProcessUsage(50.0, 100.0))
    assert activity(training(times, [20, 21], [100.0, 200.0]), used) == [
        WorkerActivity(3.0, 0.5, 50.0, 100.0, 0.5),
        WorkerActivity(1.0, 1.0, 90.0, 200.0, 0.0),
    ]


def test_workers_whose_process_was_not_sampled_have_no_usage() -> None:
    times = [CollectTimes(1.0, 1.0, 2.0)] * 2
    found = activity(training(times, [20, 21], [0.0, 200.0]), usage(pid21=ProcessUsage(90.0, 200.0)))
    assert [(one.cpu_percent, one.memory_mb) for one in found] == [(None, None), (90.0, 200.0)]
    # On a cluster the driver knows no pids; the nodes have sampled the memory.
    found = activity(training(times, [], [64.5, 70.0]), usage())
    assert [(one.cpu_percent, one.memory_mb) for one in found] == [(None, 64.5), (None, 70.0)]


def test_processes_beyond_the_reported_workers_are_left_out() -> None:
    found = activity(training([CollectTimes(1.0, 1.0, 2.0)], [20, 21], [50.0, 60.0]), usage())
    assert len(found) == 1

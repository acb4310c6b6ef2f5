"""Numbers about workers for the record of an iteration: their times and memory, and percentiles of the lag."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

import numpy as np

from paceline.measure.machine import Usage
from paceline.measure.record import WorkerActivity
from paceline.memory.worker_status import MEMORY
from paceline.train.training import Training


def lag_percentiles(counts: Counter[int]) -> dict[str, float]:
    """Mean, percentiles and maximum of the lag.

    Args:
        counts: Number of slots by lag; all zero if empty.
    """
    seen = np.repeat(sorted(counts) or [0], [counts[lag] for lag in sorted(counts)] or [1])
    middle, high, highest = np.percentile(seen, [50, 90, 99], method="inverted_cdf")
    return {
        "mean": float(seen.mean()),
        "p50": float(middle),
        "p90": float(high),
        "p99": float(highest),
        "max": float(seen[-1]),
    }


def activity(training: Training, usage: Usage) -> list[WorkerActivity]:
    """Times of each worker in the last rollout, and its CPU and memory usage, in worker order."""
    times = training.rollouts.last.times
    usages = [usage.each.get(pid) for pid in training.runtime.pids()]
    memory_kb = training.arena["heartbeat"][: len(times), MEMORY].tolist()
    return [
        WorkerActivity(
            spent.env_s,
            spent.inference_s - spent.waiting_s,
            None if one is None else one.cpu_percent,
            kb / 1024 or None,
            spent.learn_s,
        )
        for spent, one, kb in zip_longest(times, usages[: len(times)], memory_kb)
    ]

"""What workers did, and how old what they did was, in the numbers that a record shows."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

import numpy as np

from paceline.measure.machine import Usage
from paceline.measure.record import WorkerActivity
from paceline.train.training import Training


def lag_percentiles(counts: Counter[int]) -> dict[str, float]:
    """Mean, percentiles and maximum."""
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
    """What each worker did in the last rollout, and takes."""
    times = training.rollouts.last.times
    taken = [usage.each.get(pid) for pid in training.runtime.pids()]
    return [
        WorkerActivity(
            spent.env_s,
            spent.inference_s - spent.waiting_s,
            None if one is None else one.cpu_percent,
            None if one is None else one.memory_mb,
            spent.learn_s,
        )
        for spent, one in zip_longest(times, taken[: len(times)])
    ]

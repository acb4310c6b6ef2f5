"""Timing windows and ratios: helpers of benchmarks that alternate between two or more things to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from paceline.measure.clock import Clock, Phases
from paceline.train.training import Training

PHASES = ("env", "inference", "wait", "learn", "sync")


def window(turn: Callable[[], int], seconds: float) -> float:
    """Call `turn` repeatedly for at least this long; returns the sum of its results per second.

    The last call is completed and its time counted.
    """
    began, count = perf_counter(), turn()
    while perf_counter() - began < seconds:
        count += turn()
    return count / (perf_counter() - began)


def iterate(training: Training) -> int:
    """Run one iteration of a training (collect and learn); returns its env steps."""
    before = training.tracker.steps
    training.driver.iterate()
    return training.tracker.steps - before


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Median of `above / below` over the rounds, and its spread (half the range between the quartiles)."""
    low, mid, high = np.percentile(np.array(above) / np.array(below), [25, 50, 75])
    return float(mid), float((high - low) / 2)


def phase_shares(clock: Clock, since: Phases) -> dict[str, float]:
    """Share of each phase in the time since a snapshot of the clock."""
    spent = clock.snapshot().since(since).seconds
    total = sum(spent.get(phase, 0.0) for phase in PHASES)
    return {phase: spent.get(phase, 0.0) / total for phase in PHASES}

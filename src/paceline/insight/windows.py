"""Speeds measured in windows that take turns, and ratios that are taken inside each round of turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from paceline.measure.clock import Clock, Phases
from paceline.train.training import Training

PHASES = ("env", "inference", "wait", "learn", "sync")


def window(turn: Callable[[], int], seconds: float) -> float:
    """Take turns for at least so long, to the end of the last; returns what they count, per second."""
    began, count = perf_counter(), turn()
    while perf_counter() - began < seconds:
        count += turn()
    return count / (perf_counter() - began)


def iterate(training: Training) -> int:
    """One rollout, and learn from it; returns the steps."""
    before = training.tracker.steps
    training.driver.iterate()
    return training.tracker.steps - before


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Median of `above / below` over the rounds, and its spread (half the range between the quartiles)."""
    low, mid, high = np.percentile(np.array(above) / np.array(below), [25, 50, 75])
    return float(mid), float((high - low) / 2)


def phase_shares(clock: Clock, since: Phases) -> dict[str, float]:
    """The share of each phase in the time since then."""
    spent = clock.delta(since).seconds
    total = sum(spent.get(phase, 0.0) for phase in PHASES)
    return {phase: spent.get(phase, 0.0) / total for phase in PHASES}

"""Sum up learning curves as one number with a confidence interval: the area under the curve. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000

Curve = Sequence[tuple[float, float]]
"""Env steps and mean return, in order of steps."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A mean over seeds with its bootstrap confidence interval."""

    mean: float
    low: float
    high: float

    def overlaps(self, other: Bootstrap) -> bool:
        """Whether the two intervals share a value."""
        return self.low <= other.high and other.low <= self.high


def area(curve: Curve, first: float, last: float) -> float:
    """Mean height of the curve from step `first` to step `last`: the area under it divided by its length."""
    x, y = np.array(curve, np.float64).T
    inside = (x > first) & (x < last)
    at = np.concatenate(([first], x[inside], [last]))
    return float(np.trapezoid(np.interp(at, x, y), at) / (last - first))


def common_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """First and last step of the range that all curves cover."""
    return max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)


def bootstrap(values: Sequence[float]) -> Bootstrap:
    """Percentile interval of the mean. Deterministic: equal values give an equal interval."""
    array = np.asarray(values, np.float64)
    drawn = np.random.default_rng(0).integers(0, len(array), (RESAMPLES, len(array)))
    low, high = np.quantile(array[drawn].mean(1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Bootstrap(float(array.mean()), float(low), float(high))

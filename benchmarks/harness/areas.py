"""How well a library learned, as one number with an interval: the area under its learning curve. numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000

Curve = Sequence[tuple[float, float]]
"""Steps and mean return, in order."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A mean over seeds, and where resampling the seeds puts it."""

    mean: float
    low: float
    high: float

    def overlaps(self, other: Bootstrap) -> bool:
        """Whether the two intervals share a value."""
        return self.low <= other.high and other.low <= self.high


def area(curve: Curve, first: float, last: float) -> float:
    """Mean height of the curve from step `first` to step `last`: the area under it by its length."""
    x, y = np.array(curve, np.float64).T
    inside = (x > first) & (x < last)
    at = np.concatenate(([first], x[inside], [last]))
    return float(np.trapezoid(np.interp(at, x, y), at) / (last - first))


def common_range(curves: Sequence[Curve]) -> tuple[float, float]:
    """The steps that all curves cover."""
    return max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)


def bootstrap(values: Sequence[float]) -> Bootstrap:
    """The percentile interval of the mean. Always the same for the same values."""
    array = np.asarray(values, np.float64)
    drawn = np.random.default_rng(0).integers(0, len(array), (RESAMPLES, len(array)))
    low, high = np.quantile(array[drawn].mean(1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Bootstrap(float(array.mean()), float(low), float(high))

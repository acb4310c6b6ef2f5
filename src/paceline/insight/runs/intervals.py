"""95 % t-intervals of means and of the ratio of two means, for small numbers of runs.

A side of a comparison usually has three to five seeds. Bootstrap intervals are far too narrow for samples of this
size; Student's t accounts for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LEVEL = 0.95
METHOD = f"{LEVEL:.0%} t-interval"
"""Name of the intervals in tables, plots and reports."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval. With a single value, `low` and `high` are equal to the mean."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half of the interval's width; 0 for a single value."""
        return (self.high - self.low) / 2


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of independent runs with its t-interval."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return Interval(mean, mean, mean, n)
    half = t_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def ratio_interval(values: Sequence[float], base: Sequence[float]) -> Interval | None:
    """The ratio of two means of positive numbers, with its interval; None if a value is not positive.

    The ends come from Welch's t-interval of the difference of logarithms, which allows different variances. With a
    single run on a side there is no interval.
    """
    if min(*values, *base, math.inf) <= 0:
        return None
    ratio = float(np.mean(values) / np.mean(base))
    n = min(len(values), len(base))
    if n < 2:
        return Interval(ratio, ratio, ratio, 1)
    logs = [np.log(values), np.log(base)]
    squares = [float(np.var(log, ddof=1)) / len(log) for log in logs]
    if not any(squares):
        return Interval(ratio, ratio, ratio, n)
    freedom = sum(squares) ** 2 / sum(square**2 / (len(log) - 1) for square, log in zip(squares, logs, strict=True))
    half = t_quantile(freedom) * math.sqrt(sum(squares))
    middle = float(np.mean(logs[0]) - np.mean(logs[1]))
    return Interval(ratio, min(ratio, math.exp(middle - half)), max(ratio, math.exp(middle + half)), n)


@lru_cache(maxsize=64)
def t_quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t distribution with this many degrees of freedom.

    The substitution t = sqrt(v) tan(a) makes the density proportional to cos(a)^(v-1), which the trapezoidal rule
    integrates accurately.
    """
    angle = np.linspace(0.0, math.pi / 2, 40_001)
    density = np.cos(angle) ** (freedom - 1)
    area = np.concatenate(([0.0], np.cumsum(density[1:] + density[:-1])))
    return math.sqrt(freedom) * math.tan(float(np.interp(LEVEL * area[-1], area, angle)))

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.insight.runs.intervals import mean_interval, ratio_interval, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (10, 2.22814), (100, 1.98397)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, rel=1e-5)


def test_mean_of_three_runs_has_the_textbook_interval() -> None:
    interval = mean_interval([10.0, 12.0, 14.0])  # mean 12, standard deviation 2
    half = 4.302653 * 2 / math.sqrt(3)
    assert interval.mean == 12.0
    assert [interval.low, interval.high] == pytest.approx([12 - half, 12 + half], rel=1e-5)
    assert interval.half_width == pytest.approx(half, rel=1e-5)


def test_one_run_has_no_interval() -> None:
    interval = mean_interval([3.0])
    assert (interval.mean, interval.low, interval.high, interval.half_width) == (3.0, 3.0, 3.0, 0.0)
    ratio = ratio_interval([3.0], [2.0])
    assert ratio is not None
    assert (ratio.mean, ratio.low, ratio.high, ratio.n) == (1.5, 1.5, 1.5, 1)


def test_ratio_has_welchs_interval_of_the_logarithms() -> None:
    a, b = [1.0, math.e], [1.0, math.e**2]
    ratio = ratio_interval(a, b)
    assert ratio is not None
    # Logarithms 0, 1 and 0, 2: squared errors 1/4 and 1, freedom (5/4)^2 / (1/16 + 1) = 25/17.
    half = t_quantile(25 / 17) * math.sqrt(1.25)
    assert ratio.low == pytest.approx(math.exp(-0.5 - half))
    assert ratio.high == pytest.approx(math.exp(-0.5 + half))
    assert ratio.mean == pytest.approx((1 + math.e) / (1 + math.e**2))


def test_ratio_without_steps_has_no_meaning() -> None:
    assert ratio_interval([1.0], [0.0]) is None
    assert ratio_interval([0.0, 1.0], [1.0, 1.0]) is None


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(1.0, 1e6), min_size=2, max_size=6), st.floats(0.5, 20.0))
def test_ratio_scales_and_holds_its_mean(values: list[float], factor: float) -> None:
    ratio = ratio_interval([factor * value for value in values], values)
    assert ratio is not None
    assert ratio.mean == pytest.approx(factor)
    assert ratio.low <= ratio.mean <= ratio.high


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2000, 3))
    inside = [interval.low <= 0 <= interval.high for interval in map(mean_interval, draws.tolist())]
    assert 0.93 < float(np.mean(inside)) < 0.97

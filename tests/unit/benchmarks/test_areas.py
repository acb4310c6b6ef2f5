from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.areas import Bootstrap, area, bootstrap, common_range


def test_area_is_the_mean_height_whatever_the_spacing() -> None:
    assert area([(0, 0), (10, 10)], 0, 10) == pytest.approx(5)
    assert area([(0, 0), (1, 1), (10, 10)], 0, 10) == pytest.approx(5)
    assert area([(0, 4), (2, 4), (3, 10), (10, 10)], 0, 2) == pytest.approx(4)


def test_area_cuts_between_points() -> None:
    assert area([(0, 0), (10, 10)], 4, 6) == pytest.approx(5)
    assert area([(0, 0), (10, 10)], 8, 10) == pytest.approx(9)


def test_common_range_is_where_all_curves_are() -> None:
    assert common_range([[(4, 0), (20, 0)], [(8, 0), (16, 0)]]) == (8, 16)


def test_bootstrap_lies_within_the_values_around_their_mean() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 10.0]
    found = bootstrap(values)
    assert found.mean == pytest.approx(4.0)
    assert 1.0 < found.low < 4.0 < found.high < 10.0
    assert bootstrap(values) == found


def test_bootstrap_covers_the_mean_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    samples = [bootstrap(draw.normal(size=30).tolist()) for _ in range(60)]
    covered = np.mean([one.low <= 0.0 <= one.high for one in samples])
    assert 0.85 <= covered < 1.0  # a little below 95 %, as the percentile interval is with 30 values


@pytest.mark.parametrize(("low", "high", "overlaps"), [(0, 1, False), (0, 2, True), (3, 3, True), (4.5, 6, False)])
def test_overlap(low: float, high: float, overlaps: bool) -> None:
    here = Bootstrap(3, 2, 4)
    there = Bootstrap(low, low, high)
    assert here.overlaps(there) is overlaps
    assert there.overlaps(here) is overlaps

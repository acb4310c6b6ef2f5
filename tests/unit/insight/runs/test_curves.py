from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.insight.runs.run_folders import complete, recorded

from paceline.errors import ConfigError
from paceline.insight.runs.curves import (
    POINTS,
    Series,
    average,
    fps_over_time,
    read_scores,
    returns_over_steps,
    returns_over_time,
    same_course,
    side_by_side,
)
from paceline.insight.runs.results import read_run


def series(x: list[float], y: list[float]) -> Series:
    return Series(np.array(x), np.array(y))


def test_score_is_reached_where_the_mean_of_a_hundred_first_is(tmp_path: Path) -> None:
    """Ten episodes an iteration, each 100 steps apart, all of them 0 until iteration 12 and 100 from then on."""
    run = read_run(complete(tmp_path / "a", iterations=30, returns=lambda i: 100.0 * (i >= 12)))
    scores = read_scores(run)
    assert scores.best == 100.0
    first = scores.reached(1.0)
    assert first is not None
    assert (first.steps, first.seconds) == (11_100, 6.0)
    quarter = scores.reached(25.0)  # the 25th episode of those
    assert quarter is not None
    assert (quarter.steps, quarter.seconds) == (13_500, 7.0)
    whole = scores.reached(100.0)
    assert whole is not None
    assert (whole.steps, whole.seconds) == (21_000, 10.5)
    assert scores.reached(100.5) is None


def test_a_score_needs_a_hundred_episodes(tmp_path: Path) -> None:
    scores = read_scores(read_run(complete(tmp_path / "a", iterations=9, returns=lambda i: 500.0)))
    assert scores.best is None
    assert scores.reached(1.0) is None


def test_score_comes_from_progress_where_there_are_no_episodes(tmp_path: Path) -> None:
    path = complete(tmp_path / "a", iterations=30, returns=lambda i: 100.0 * (i >= 12))
    (path / "episodes.csv").unlink()
    reached = read_scores(read_run(path)).reached(25.0)
    assert reached is not None
    assert (reached.steps, reached.seconds) == (14_000, 7.0)  # at the end of that iteration


def test_means_that_are_equal_but_for_rounding_count(tmp_path: Path) -> None:
    scores = read_scores(read_run(complete(tmp_path / "a", iterations=12, returns=lambda i: 0.1)))
    assert scores.reached(0.1) is not None


def test_damaged_episodes_are_named(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a")
    with (path / "episodes.csv").open("a") as file:
        file.write("nonsense\n")
    with pytest.raises(ConfigError, match=r"episodes\.csv, line 32: damaged"):
        read_scores(read_run(path))


def test_curves_of_a_run(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path / "a"))
    steps, wall = returns_over_steps(run), returns_over_time(run)
    np.testing.assert_allclose(steps.x, [1000, 2000, 3000])
    np.testing.assert_allclose(wall.x, [0.5, 1.0, 1.5])
    np.testing.assert_allclose(steps.y, [20, 30, 40])
    np.testing.assert_allclose(wall.y, steps.y)


def test_speed_is_steps_over_seconds_without_evaluation(tmp_path: Path) -> None:
    speed = fps_over_time(read_run(recorded(tmp_path / "a")))  # windows of three: [1, 2], [1, 2, 3], [2, 3]
    np.testing.assert_allclose(speed.y, [2000 / 0.9, 3000 / 1.4, 2000 / 0.9])


def test_average_has_the_textbook_band() -> None:
    curve = average([series([0, 10], [10, 30]), series([0, 10], [12, 32]), series([0, 20], [14, 54])])
    assert curve is not None
    assert (curve.x[0], curve.x[-1], curve.n) == (0, 10, 3)  # as far as all of them go
    np.testing.assert_allclose(curve.mean, 12 + 2 * curve.x)
    np.testing.assert_allclose(curve.high - curve.mean, 4.302653 * 2 / math.sqrt(3), rtol=1e-5)
    np.testing.assert_allclose(curve.mean - curve.low, curve.high - curve.mean)


def test_one_run_is_drawn_as_it_is_and_thinned_when_long() -> None:
    short = average([series([1, 2, 5], [3, 1, 2])])
    assert short is not None
    np.testing.assert_array_equal(short.mean, [3, 1, 2])
    np.testing.assert_array_equal(short.low, short.high)
    long = average([Series(np.arange(5000.0), np.arange(5000.0))])
    assert long is not None
    assert len(long.x) == POINTS


def test_runs_without_a_common_range_have_no_average() -> None:
    assert average([]) is None
    assert average([series([1], [1])]) is None
    assert average([series([0, 1], [0, 0]), series([2, 3], [0, 0])]) is None
    assert side_by_side([series([0, 1], [0, 0])], [series([2, 3], [0, 0])]) is None


def test_two_groups_are_interpolated_at_the_same_points() -> None:
    pair = side_by_side([series([0, 10], [0, 10])], [series([5, 30], [1, 1]), series([2, 30], [1, 1])])
    assert pair is not None
    a, b = pair
    np.testing.assert_array_equal(a.x, b.x)
    assert (a.x[0], a.x[-1]) == (5, 10)
    np.testing.assert_allclose(a.mean, a.x)


def test_same_course_is_the_same_to_the_last_digit(tmp_path: Path) -> None:
    long = read_run(recorded(tmp_path / "a", iterations=5))
    short = read_run(recorded(tmp_path / "b", iterations=3))
    assert same_course(long, short) == 3000
    other = dict(short.progress)
    other["train/loss"] = other["train/loss"] + np.array([0, 0, 1e-7])
    assert same_course(long, replace(short, progress=other)) is None
    assert same_course(long, replace(short, progress={})) is None

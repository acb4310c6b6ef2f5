from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.insight.runs.run_folders import complete, read_all, recorded, sides

from paceline.insight.runs.compare import compare
from paceline.insight.runs.picture import DARK, LIGHT, PHASE_COLOURS, Picture, axis, make_picture, tick_text
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.sides import PHASES
from paceline.measure.record import ACTIVITIES


@pytest.fixture
def runs(tmp_path: Path) -> list[RunResult]:
    folders = [complete(tmp_path / f"r{i}", returns=lambda k, i=i: k + 10.0 * i, seed=i) for i in range(4)]  # type: ignore[misc]
    return read_all(*folders)


@pytest.fixture
def picture(runs: list[RunResult]) -> Picture:
    return make_picture(compare(sides(runs[:2], runs[2:]), score=20.0))


def test_panels_have_the_right_axes_curves_and_marks(picture: Picture) -> None:
    steps, wall, fps = picture.charts
    assert [chart.key for chart in picture.charts] == ["return-steps", "return-time", "fps"]
    assert (steps.x.label, wall.x.label) == ("steps", "seconds")
    assert (steps.x.high, wall.x.high) == (30_000, 15.0)
    assert list(steps.curves) == [0, 1]
    first, second = steps.curves[0], steps.curves[1]
    assert first.n == 2
    np.testing.assert_allclose(second.mean - first.mean, 20.0, atol=1e-9)  # seeds 0, 1 against 2, 3
    assert (first.high > first.mean).all()
    assert steps.mark == (20.0, "score 20")
    assert fps.mark is None
    assert fps.y.low == 0.0
    assert "last 100 episodes" in steps.note
    assert "running mean" in fps.note
    assert "95% t-interval" in picture.note


def test_bars_are_time_per_step_and_pieces_add_up(picture: Picture) -> None:
    for bar in picture.bars.bars:
        assert sum(piece.share for piece in bar.pieces) == pytest.approx(1.0)
        assert sum(piece.length for piece in bar.pieces) == pytest.approx(500.0)  # 15 s for 30,000 steps
        ends = [piece.begin + piece.length for piece in bar.pieces]
        assert [piece.begin for piece in bar.pieces[1:]] == pytest.approx(ends[:-1])
        assert bar.total == "500 µs"
    assert picture.bars.phases == ("env", "inference", "wait", "learn", "record", "other")


def test_asynchronous_runs_have_a_bar_for_the_driver_and_one_for_a_worker(runs: list[RunResult]) -> None:
    driver, worker = {"wait": 13.8, "sync": 1.2}, {"env": 9.0, "inference": 3.0, "idle": 3.0}
    one, other = runs[0], replace(runs[1], phases=driver, worker_s=worker, num_workers=2)
    bars = make_picture(compare(sides(one, other))).bars
    assert [(bar.side, bar.whose) for bar in bars.bars] == [(0, ""), (1, ": driver"), (1, ": average worker")]
    assert [piece.phase for piece in bars.bars[2].pieces] == ["env", "inference", "idle"]
    assert [piece.share for piece in bars.bars[2].pieces] == pytest.approx([0.6, 0.2, 0.2])
    assert bars.bars[1].total == bars.bars[2].total
    assert "idle" in bars.phases


def test_long_runs_are_shown_in_hours(runs: list[RunResult]) -> None:
    hour = dict(runs[0].progress)
    hour["time/time_elapsed"] = hour["time/time_elapsed"] * 1200  # up to five hours
    long = replace(runs[0], progress=hour, wall_s=18_000.0)
    picture = make_picture(compare(sides(long, runs[1])))
    assert picture.charts[1].x.label == "hours"
    assert picture.charts[1].x.high == pytest.approx(5.0)


def test_wide_bands_do_not_compress_the_curves(tmp_path: Path) -> None:
    runs = read_all(
        complete(tmp_path / "a", returns=lambda i: 0.0, seed=0),
        complete(tmp_path / "b", returns=lambda i: 100.0, seed=1),
    )
    chart = make_picture(compare(sides(runs, read_all(complete(tmp_path / "c", returns=float))[0]))).charts[0]
    assert chart.curves[0].high.max() > 600  # two runs: t is 12.7
    assert chart.y.high < 100
    assert chart.y.low == 0.0  # no return is below
    below = [complete(tmp_path / f"n{i}", returns=lambda _, i=i: -100.0 * i, seed=i) for i in (1, 2)]  # type: ignore[misc]
    other = read_all(complete(tmp_path / "d", returns=lambda i: -100.0 - i))[0]
    chart = make_picture(compare(sides(read_all(*below), other))).charts[0]
    assert chart.curves[0].low.min() < -700
    assert -250 < chart.y.low < -150


def test_legend_marks_unfinished_runs_and_other_tasks(tmp_path: Path, runs: list[RunResult]) -> None:
    killed = read_all(recorded(tmp_path / ("x" * 60)))[0]
    odd = replace(runs[2], env="Acrobot-v1")
    picture = make_picture(compare(sides(runs[:2], killed, odd)))
    assert [list(chart.curves) for chart in picture.charts] == [[0, 1], [0, 1], [0, 1, 2]]
    assert "another task are not drawn" in picture.charts[0].note
    names = picture.names
    assert names[0] == "A (2 runs)"
    assert names[1].startswith("…xxx")
    assert names[1].endswith("(unfinished)")
    assert names[2] == "r2 (another task)"


def test_every_phase_and_side_has_a_colour() -> None:
    assert set(PHASE_COLOURS) == {*PHASES, *ACTIVITIES}
    assert len(set(PHASE_COLOURS.values())) == len(PHASE_COLOURS)
    assert len(set(LIGHT)) == len(LIGHT) == len(set(DARK)) == len(DARK)


@settings(deadline=None, max_examples=100)
@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.sampled_from([0.0, 0.06]))
def test_ticks_are_few_inside_and_different(low: float, length: float, margin: float) -> None:
    made = axis("x", low, low + length, margin=margin)
    if low + length == low or length < 1e-9 * abs(low):
        return  # too close for floating point
    assert 2 <= len(made.ticks) <= 8
    places = [place for place, _ in made.ticks]
    assert all(made.low - 1e-6 * length <= place <= made.high + 1e-6 * length for place in places)
    if length > 1e-3 * abs(low):
        assert len({text for _, text in made.ticks}) == len(places)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0, 50, "0"), (500, 100, "500"), (20_000, 10_000, "20k"), (2500, 500, "2.5k"), (1.5e6, 5e5, "1.5M"),
     (0.25, 0.25, "0.25"), (-400, 200, "-400"), (2.5, 2.5, "2.5"), (12_345_678, 1, "12,345,678"), (0.3, 0.1, "0.3")],
)  # fmt: skip
def test_tick_texts_are_short(value: float, step: float, text: str) -> None:
    assert tick_text(value, step) == text


def test_equal_values_still_have_an_axis() -> None:
    made = axis("x", 5.0, 5.0)
    assert made.low < 5.0 < made.high

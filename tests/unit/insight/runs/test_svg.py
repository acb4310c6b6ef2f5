"""The SVG drawings of the page: everything is inside its panel, shapes say their numbers, colours come from classes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete, read_all, sides

from paceline.insight.runs.compare import Comparison, compare
from paceline.insight.runs.page import make_page
from paceline.insight.runs.picture import Bar, Piece, make_picture
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.svg import bars_svg, chart_svg


@pytest.fixture
def runs(tmp_path: Path) -> list[RunResult]:
    folders = [complete(tmp_path / f"r{i}", returns=lambda k, i=i: k + 10.0 * i, seed=i) for i in range(4)]  # type: ignore[misc]
    return read_all(*folders)


@pytest.fixture
def comparison(runs: list[RunResult]) -> Comparison:
    return compare(sides(runs[:2], runs[2:]), score=20.0)


@pytest.fixture
def html(comparison: Comparison) -> str:
    return make_page(comparison, make_picture(comparison))


def test_everything_drawn_is_inside_its_panel(html: str) -> None:
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        found = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawing)
        assert found is not None
        width, height = map(float, found.groups())
        for d in re.findall(r'class="line[^>]* d="M([^"]*)"', drawing):
            points = [tuple(map(float, point.split())) for point in d.split("L")]
            assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
        for x, y in re.findall(r'<text [^>]*x="([-\d.]+)" y="([-\d.]+)"', drawing):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_lines_and_bars_say_their_names_and_numbers_when_pointed_at(runs: list[RunResult]) -> None:
    picture = make_picture(compare(sides(*runs[:2])))
    chart = chart_svg(picture.charts[0], ("<first>", "second"))
    assert re.findall(r"<title>(.*?)</title>", chart) == ["&lt;first&gt;", "second"]
    (bar, _) = picture.bars.bars
    titles = re.findall(r"<title>(.*?)</title>", bars_svg(picture.bars, picture.names))
    assert len(titles) == 2 * len(bar.pieces)
    assert titles[0] == f"{bar.pieces[0].phase}: {bar.pieces[0].share:.1%}, {bar.pieces[0].length:,.3g} µs per step"


def test_colours_come_from_classes_so_that_the_style_sheet_can_change_them(html: str) -> None:
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        assert not re.search(r"#[0-9A-Fa-f]{6}|style=", drawing)
        assert {"side0", "side1"} <= set(re.findall(r"\bside\d", drawing))


def test_a_chart_without_curves_says_so(runs: list[RunResult]) -> None:
    chart = replace(make_picture(compare(sides(*runs[:2]))).charts[0], curves={})
    drawing = chart_svg(chart, ("a", "b"))
    assert "nothing was recorded" in drawing
    assert 'class="line' not in drawing


def test_a_piece_has_the_longest_text_that_fits(runs: list[RunResult]) -> None:
    bars = make_picture(compare(sides(*runs[:2]))).bars
    axis = replace(bars.x, low=0.0, high=100.0)
    pieces = (Piece("learn", 0.0, 60.0, 0.6), Piece("env", 60.0, 9.0, 0.09), Piece("wait", 69.0, 1.0, 0.01))
    drawing = bars_svg(replace(bars, x=axis, bars=(Bar(0, pieces, "1 µs"),)), ("a",))
    assert re.findall(r'class="in [^"]*"[^>]*>(.*?)</text>', drawing) == ["learn 60%", "9%"]

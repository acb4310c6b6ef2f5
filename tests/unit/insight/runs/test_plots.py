"""The PNG of a comparison."""

from __future__ import annotations

import struct
from pathlib import Path

import matplotlib as mpl
import pytest
from tests.unit.insight.runs.run_folders import complete, read_all, sides, summarised

from paceline.insight.runs.compare import compare
from paceline.insight.runs.picture import Picture, make_picture
from paceline.insight.runs.plots import DPI, HEIGHT, WIDTH, draw_png, piece_text
from paceline.insight.runs.results import RunResult


@pytest.fixture
def runs(tmp_path: Path) -> list[RunResult]:
    folders = [complete(tmp_path / f"r{i}", returns=lambda k, i=i: k + 10.0 * i, seed=i) for i in range(4)]  # type: ignore[misc]
    return read_all(*folders)


@pytest.fixture
def picture(runs: list[RunResult]) -> Picture:
    return make_picture(compare(sides(runs[:2], runs[2:]), score=20.0))


def test_png_is_a_picture_of_the_promised_size(picture: Picture) -> None:
    before = dict(mpl.rcParams)
    data = draw_png(picture, "a $title", "One sentence.")
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (int(WIDTH * DPI), int(HEIGHT * DPI))
    assert dict(mpl.rcParams) == before  # the caller's own plots are left alone


def test_png_of_runs_without_curves(tmp_path: Path) -> None:
    runs = read_all(summarised(tmp_path / "a"), summarised(tmp_path / "日本", phases={}))
    picture = make_picture(compare(sides(*runs)))
    assert picture.charts[0].curves == {}
    assert draw_png(picture, "t", "v").startswith(b"\x89PNG")


def test_text_in_a_piece_only_where_it_fits() -> None:
    assert piece_text("learn", 0.4, 0.4) == "learn 40%"
    assert piece_text("learn", 0.1, 0.1) == "10%"
    assert piece_text("learn", 0.01, 0.01) is None

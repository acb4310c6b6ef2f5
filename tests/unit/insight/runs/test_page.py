from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete, read_all, sides, summarised

from paceline.insight.runs.compare import Comparison, compare
from paceline.insight.runs.page import make_page
from paceline.insight.runs.picture import make_picture
from paceline.insight.runs.results import RunResult

VOID = {"meta", "link", "br", "hr", "img"}


class Page(HTMLParser):
    """Elements and texts of a page; fails where tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


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


def test_all_panels_are_there_as_drawings(html: str) -> None:
    page = Page(html)
    drawings = page.all("svg")
    assert [drawing["id"] for drawing in drawings] == ["return-steps", "return-time", "fps", "phases"]
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert drawing["aria-label"]
        assert "width" not in drawing  # as wide as the page gives room
    paths = [path for path in page.all("path") if "line" in str(path.get("class")).split()]
    bands = [path for path in page.all("path") if "band" in str(path.get("class")).split()]
    assert len(paths) == len(bands) == 6  # two sides in three charts
    assert {"Return over steps", "Return over wall time", "Steps per second over time", "Where the time went"} <= set(
        page.texts
    )


def test_nothing_is_loaded_and_nothing_runs(html: str) -> None:
    page = Page(html)
    assert not re.search(r"https?:|@import|@font-face|//\w", html)
    assert "script" not in {tag for tag, _ in page.elements}
    loads = [value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href")]
    assert loads == ["data:,"]  # an empty icon, so that no browser asks for one
    assert re.findall(r"url\(([^)]*)\)", html) == ["#area-return-steps", "#area-return-time", "#area-fps"]


def test_light_and_dark_and_narrow(html: str) -> None:
    assert "prefers-color-scheme: dark" in html
    assert "color-scheme: light dark" in html
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in Page(html).all("meta")
    assert not re.search(r"(?<!-)\bwidth: [4-9]\d\dpx|min-width: [4-9]\d\dpx", html)  # nothing wider than a phone
    light, dark = html.split("prefers-color-scheme: dark", 1)
    names = set(re.findall(r"(--[\w-]+):", light))
    assert names == set(re.findall(r"(--[\w-]+):", dark.split("* {")[0]))  # no colour is forgotten in the dark
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= names


def test_page_has_the_verdict_the_table_and_the_runs(html: str, comparison: Comparison) -> None:
    texts = set(Page(html).texts)
    assert comparison.verdict in texts
    for row in comparison.rows:
        assert {row.label, *row.cells} <= texts
    assert "paceline train ppo --output-dir r0" in texts


def test_names_are_text_and_not_markup(runs: list[RunResult]) -> None:
    evil = replace(runs[1], path=Path("<script>alert(1)<b>&"), command="rm <x>", env='"Cart"<b>')
    result = compare(sides(replace(runs[0], env='"Cart"<b>'), evil))
    page = Page(make_page(result, make_picture(result)))
    assert "script" not in {tag for tag, _ in page.elements}
    assert "b" not in {tag for tag, _ in page.elements}
    assert sum("<script>alert(1)<b>&" in text for text in page.texts) >= 6  # title, legend, lines, bar, table, runs
    assert any('"Cart"<b>' in text for text in page.texts)


def test_the_box_of_remarks_is_shown_only_with_remarks(html: str, runs: list[RunResult]) -> None:
    assert 'class="remarks"' not in html
    result = compare(sides(runs[0], replace(runs[1], n_envs=8)))
    assert (
        "the runs differ in n_envs (32 against 8): not like for like."
        in Page(make_page(result, make_picture(result))).texts
    )


def test_page_of_runs_with_other_tasks_or_without_curves(tmp_path: Path) -> None:
    runs = read_all(summarised(tmp_path / "a"), summarised(tmp_path / "b", env="Acrobot-v1", phases={}))
    result = compare(sides(*runs))
    html = make_page(result, make_picture(result))
    assert len(Page(html).all("svg")) == 4
    assert 'class="facts"' not in html  # no headline numbers where nothing can be compared
    assert "nothing was recorded" in html


def test_more_sides_than_colours_are_dashed(runs: list[RunResult]) -> None:
    many = [replace(runs[0], path=runs[0].path.with_name(f"n{i}")) for i in range(9)]
    result = compare(sides(*many))
    html = make_page(result, make_picture(result))
    assert html.count("stroke-dasharray=") == 2 * 3
    Page(html)

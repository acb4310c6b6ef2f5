from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.figures import filled, pages
from benchmarks.harness.paths import ROOT

PAGE = "Before.\n\n<!-- figures: speed -->\nold 1\n<!-- end -->\n\nBetween <!-- figures: no place -->.\n"
COMMAND = "python -m benchmarks.suites.speed"
MACHINE = {"cores": 2, "cpu": "EPYC", "command": COMMAND}


def _result(folder: Path, fragment: str) -> None:
    (folder / "speed.json").write_text(json.dumps({"fragment": fragment, "machine": MACHINE}))


def test_the_fragment_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    _result(tmp_path, "| a | 2 \\1 |")
    text = filled(PAGE, tmp_path, tmp_path)
    assert "old 1" not in text
    assert "| a | 2 \\1 |" in text
    assert COMMAND in text
    assert text.startswith("Before.\n\n<!-- figures: speed -->\n")
    assert text.endswith("<!-- end -->\n\nBetween <!-- figures: no place -->.\n")
    assert filled(text, tmp_path, tmp_path) == text


def test_every_place_has_its_own_figures(tmp_path: Path) -> None:
    _result(tmp_path, "new")
    text = filled(PAGE + "<!-- figures: other -->\nold 2\n<!-- end -->\n", tmp_path, tmp_path)
    assert text.count("new") == 1
    assert "Not measured yet: `make bench-other`." in text


def test_a_picture_is_linked_from_where_the_page_lies(tmp_path: Path) -> None:
    _result(tmp_path, "new")
    (tmp_path / "speed.png").touch()
    text = filled(PAGE, tmp_path / "docs" / "explain", tmp_path)
    assert "![speed](../../speed.png)" in text


def test_a_result_without_a_fragment_is_its_page_without_the_title(tmp_path: Path) -> None:
    (tmp_path / "speed.json").write_text("{}")
    (tmp_path / "speed.md").write_text(f"# Speed\n\n## One env\n\n| a | 2 |\n\n`{COMMAND}`\n")
    text = filled(PAGE, tmp_path, tmp_path)
    assert f"<!-- figures: speed -->\n\n### One env\n\n| a | 2 |\n\n`{COMMAND}`\n\n<!-- end -->" in text
    assert "# Speed" not in text


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_figures_of_the_docs_are_those_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert filled(text, page.parent) == text, "run `make bench-docs`"

"""The text report of a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete, read_all, sides

from paceline.insight.runs.compare import Comparison, compare
from paceline.insight.runs.report import make_report, sections, title_of
from paceline.insight.runs.results import RunResult


@pytest.fixture
def runs(tmp_path: Path) -> list[RunResult]:
    folders = [complete(tmp_path / f"r{i}", returns=lambda k, i=i: k + 10.0 * i, seed=i) for i in range(4)]  # type: ignore[misc]
    return read_all(*folders)


@pytest.fixture
def comparison(runs: list[RunResult]) -> Comparison:
    return compare(sides(runs[:2], runs[2:]), score=20.0)


def test_title_names_task_and_sides(comparison: Comparison, runs: list[RunResult]) -> None:
    assert title_of(comparison) == "ppo on CartPole-v1: A against B"
    assert title_of(compare(sides(runs[0], replace(runs[1], env="X")))) == "r0 against r1"
    assert title_of(compare(sides(*runs))) == "ppo on CartPole-v1: r0 against 3 others"


def test_the_report_of_one_config_has_no_speed_up(runs: list[RunResult]) -> None:
    result = compare(sides(runs))
    assert title_of(result) == "ppo on CartPole-v1: A, 4 seeds"
    text = make_report(result)
    assert "peed-up" not in text
    assert "95% t-interval" in text


def test_the_report_has_verdict_table_commands_and_machine(comparison: Comparison) -> None:
    text = make_report(comparison)
    assert comparison.as_text() in text
    assert comparison.verdict in " ".join(text.split())
    assert "  $ paceline train ppo --output-dir r3\n" in text
    assert "Testium 9, 2 cores, 4 GB, paceline 0.1.0, torch 2.13.0." in text
    assert "95% t-interval" in text
    assert "Remarks" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("  $")) <= 100


def test_the_report_has_remarks_and_several_machines(runs: list[RunResult]) -> None:
    result = compare(sides(runs[0], replace(runs[1], machine={"cpu": "Other", "cores": {"logical": 4}}, command=None)))
    text = make_report(result)
    assert "- the runs differ in machine (Testium 9, 2 cores against Other, 4 cores)" in text
    lines = [line for section in sections(result) for line in section.lines]
    assert "Other, 4 cores (1 of 2 runs)." in lines
    assert "The command is not known." in lines

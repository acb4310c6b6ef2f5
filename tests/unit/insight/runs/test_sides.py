"""Names of sides, and the runs of a side."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import read_all, sides, summarised

from paceline.errors import ConfigError
from paceline.insight.runs.compare import compare
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.sides import make_sides
from paceline.measure.record import EvaluationRow


@pytest.fixture
def pair(tmp_path: Path) -> list[RunResult]:
    par = {"num_workers": 4, "fps": 30_000.0, "final_eval": EvaluationRow(500.0, 500.0), "peak_memory_mb": 600.0}
    return read_all(summarised(tmp_path / "seq"), summarised(tmp_path / "par", **par))


def test_runs_of_one_name_are_told_apart_by_path(tmp_path: Path) -> None:
    folders = [summarised(tmp_path / parent / "run") for parent in ("a", "b")]
    runs = read_all(*folders)
    assert compare(sides(*runs)).names == tuple(map(str, folders))
    twice = make_sides([(None, [runs[0]]), (None, [runs[0]])])
    assert len({side.name for side in twice}) == 2


def test_groups_of_one_name_are_numbered(pair: list[RunResult]) -> None:
    seq, par = pair
    groups = [("parallel", [seq, par]), ("parallel", [par, seq]), ("parallel", [seq])]
    assert [side.name for side in make_sides(groups)] == ["parallel 1", "parallel 2", "seq"]


def test_a_run_twice_on_a_side_is_refused(pair: list[RunResult]) -> None:
    with pytest.raises(ConfigError, match="seq': is twice on one side"):
        make_sides([("a", [pair[0], pair[0]]), (None, [pair[1]])])

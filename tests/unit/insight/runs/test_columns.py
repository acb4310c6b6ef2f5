"""CSV files of runs: whole rows are read, half a line is not, damage is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.insight.runs.run_folders import recorded, summarised

from paceline.errors import ConfigError
from paceline.insight.runs.columns import read_columns
from paceline.insight.runs.results import read_run


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a")
    with (path / "progress.csv").open("a") as file:
        file.write("4,4000,4")
    assert read_run(path).steps == 3000


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: "", r"progress\.csv: damaged"),
        (lambda text: "a,b\n1,2\n", r"progress\.csv: damaged"),
        (lambda text: text + "1,2\n", r"progress\.csv, line 5: damaged"),
        (lambda text: text + text.splitlines()[1] + ",1\n", r"progress\.csv, line 5: damaged"),
        (lambda text: text.replace("2000", "x", 1), r"progress\.csv, line \d: damaged"),
        (lambda text: text.replace("\n2,2000,", "\n2,,", 1), r"progress\.csv, line 3: damaged"),
    ],
)
def test_damaged_progress_is_named(tmp_path: Path, edit: Any, message: str, finished: bool) -> None:
    path = recorded(tmp_path / "a") / "progress.csv"
    path.write_text(edit(path.read_text()))
    if finished:
        summarised(tmp_path / "a")
    with pytest.raises(ConfigError, match=message):
        read_run(tmp_path / "a")


def test_columns_have_nan_for_empty_cells(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,b\n1,\n2,0.5\n")
    columns = read_columns(file, ("a",))
    np.testing.assert_array_equal(columns["a"], [1.0, 2.0])
    np.testing.assert_array_equal(columns["b"], [np.nan, 0.5])
    file.write_text("a,b\n")
    assert [len(column) for column in read_columns(file, ("a",)).values()] == [0, 0]


def test_columns_of_earlier_versions_have_their_present_names(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a,system/rss_mb\n1,200\n")
    assert read_columns(file, ("a",))["system/pss_mb"].tolist() == [200.0]

"""Progress messages and the result file of `bench` and `tune`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.cli.measured import progress_printer, write_result


def test_progress_goes_to_stderr_with_the_name_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    progress_printer("tune")("round 1 of 3")
    captured = capsys.readouterr()
    assert captured.err == "tune: round 1 of 3\n"
    assert captured.out == ""


def test_the_result_is_written_where_it_is_asked_for_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_result({"speedup": 1.5}, None)
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "new" / "folder" / "result.json"
    write_result({"speedup": 1.5, "windows": (1, 2)}, path)
    assert json.loads(path.read_text()) == {"speedup": 1.5, "windows": [1, 2]}

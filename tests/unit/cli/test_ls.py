from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import summarised

from paceline import cli
from paceline.cli import ls
from paceline.insight.runs.listing import Listed
from paceline.measure.record import EvaluationRow


def test_a_line_for_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summarised(tmp_path / "a", num_workers=4, final_eval=EvaluationRow(480.0, 1.0))
    summarised(tmp_path / "b", finished=False, stop_reason="SIGINT", final_eval=None)
    assert cli.main(["ls", str(tmp_path)]) == 0
    head, a, b = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert head == list(ls.COLUMNS)
    assert a[:7] == [str(tmp_path / "a"), "finished", "ppo", "CartPole-v1", "4", "100,000", "480.0"]
    assert a[8].endswith(" s")
    assert b[1] == "unfinished (SIGINT)"


def test_scores_of_training_are_marked_and_unknown_things_left_open(tmp_path: Path) -> None:
    one = Listed(path=tmp_path, state="running", score=12.5)
    assert [str(cell) for cell in ls._cells(one)] == [
        str(tmp_path), "running", "-", "-", "-", "-", "~12.5", "-", "0 s",
    ]  # fmt: skip


def test_nothing_to_list(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["ls"]) == 0
    assert "no runs under runs/" in capsys.readouterr().out
    assert cli.main(["ls", "nowhere"]) == 2
    assert "ls 'nowhere': no such folder" in capsys.readouterr().err
    assert cli.main(["ls", "--all"]) == 2
    assert "ls --all: not expected" in capsys.readouterr().err


def test_ages() -> None:
    assert [ls.age(s) for s in (5, 90, 7200, 100_000, 300_000)] == ["5 s", "2 min", "2 h", "28 h", "3 days"]


@pytest.mark.parametrize("words", [["ls"], ["plot"], ["--help"]])
def test_torch_is_not_imported(words: list[str], tmp_path: Path) -> None:
    code = f"import sys; from paceline import cli; cli.main({words!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60, check=False).returncode == 0

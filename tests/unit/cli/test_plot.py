from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete

from paceline import cli


def test_one_run_is_drawn_into_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = complete(tmp_path / "a", returns=float)
    assert cli.main(["plot", str(run)]) == 0
    file = tmp_path / "a" / "learning_curves.png"
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_bytes().startswith(b"\x89PNG")


def test_several_runs_are_drawn_into_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [str(complete(tmp_path / name, returns=float)) for name in ("a", "b")]
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", *runs]) == 0
    assert (tmp_path / "learning_curves.png").exists()
    assert cli.main(["plot", *runs, "--output", "new/x.png"]) == 0
    assert (tmp_path / "new" / "x.png").read_bytes() == (tmp_path / "learning_curves.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "plot: needs a run folder"),
        (["nowhere"], "run 'nowhere': no such folder"),
        (["a", "--output", "x.pdf"], "plot --output 'x.pdf': must end with .png"),
        (["a", "--output", "file/x.png"], "plot --output 'file/x.png': must be writable"),
        (["a", "--outptu", "x.png"], "plot --outptu: not expected. Did you mean '--output'?"),
        (["damaged"], "progress.csv, line 2: damaged"),
        (["empty"], "neither summary.json nor progress.csv"),
    ],
)
def test_bad_arguments_exit_with_2(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    complete(tmp_path / "a", returns=float)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "progress.csv").write_text("iteration,steps,episodes\n1,x,2\n")
    assert cli.main(["plot", *words]) == 2
    assert said in capsys.readouterr().err

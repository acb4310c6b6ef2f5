from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.insight.runs.run_folders import complete, recorded, summarised

from paceline.cli import main
from paceline.cli.compare import run
from paceline.errors import ConfigError

FILES = ["comparison.html", "comparison.png", "comparison_report.txt"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, files are written into the current folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def seq(tmp_path: Path) -> str:
    return str(summarised(tmp_path / "seq", fps=1000.0))


@pytest.fixture
def par(tmp_path: Path) -> str:
    return str(summarised(tmp_path / "par", fps=1500.0, num_workers=2))


def test_prints_table_and_verdict_and_writes_the_files(seq: str, par: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([seq, par]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["seq", "par"]
    assert any(line.split() == ["speed-up", "1.00x", "1.50x"] for line in out.splitlines())
    assert "par (2 workers) ran 1.50 times as fast as seq" in out
    assert "\x1b" not in out  # no colours in a pipe
    assert sorted(path.name for path in Path.cwd().iterdir()) == FILES
    assert all(f"written: {name}" in out for name in FILES)


def test_files_go_where_asked(seq: str, par: str, tmp_path: Path) -> None:
    for flag in ("--output-dir", "--output_dir"):
        folder = tmp_path / flag / "new"
        assert run([seq, par, flag, str(folder)]) == 0
        assert sorted(path.name for path in folder.iterdir()) == FILES
    assert list(Path.cwd().iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(seq: str, par: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("a file")
    assert main(["compare", seq, par, "--output-dir", "taken/x"]) == 2
    assert "output_dir 'taken/x': must be writable" in capsys.readouterr().err


def test_named_runs_are_the_same_as_listed_ones(
    seq: str, par: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.compare.draw_png", lambda *_: b"")  # slow, and not tested here
    run([seq, par])
    listed = capsys.readouterr().out
    run(["--parallel", par, "--sequential", seq])
    assert capsys.readouterr().out == listed
    run([par, f"--sequential={seq}"])
    assert capsys.readouterr().out == listed


def test_runs_that_differ_only_in_their_seed_are_no_race(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = [str(complete(tmp_path / f"a{i}", returns=float, seed=i, fps=1000.0 + i)) for i in range(3)]
    b = [str(complete(tmp_path / f"b{i}", returns=float, seed=i, fps=2000.0 + i, num_workers=2)) for i in range(2)]
    assert run(a) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["a"]
    assert "3 seeds of one config" in out
    assert "times as fast" not in out
    assert sorted(path.name for path in Path.cwd().iterdir()) == FILES
    assert run([b[0], *a, b[1]]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["b", "a"]
    assert "a ran slower than b" in out
    assert run(["--sequential", a[0], "--parallel", a[1]]) == 0
    assert "a1 ran about as fast as a0" in capsys.readouterr().out


def test_groups_of_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = [str(complete(tmp_path / f"a{i}", returns=float, seed=i, fps=1000.0 + i)) for i in range(3)]
    b = [str(complete(tmp_path / f"b{i}", returns=float, seed=i, fps=2000.0 + i, num_workers=2)) for i in range(2)]
    assert run(["--sequential", *a, "--parallel", *b, "--score", "12"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["sequential", "parallel"]
    assert any(line.split() == ["steps/s", "1,001", "±", "2", "2,000", "±", "6"] for line in out.splitlines())
    assert any(line.split() == ["time", "to", "12", "8.5", "s", "8.5", "s"] for line in out.splitlines())
    assert "95% t-interval" in out


def test_a_killed_run_compares(seq: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([seq, str(recorded(tmp_path / "killed"))]) == 0
    assert "killed is unfinished" in capsys.readouterr().out


def test_too_few_runs(seq: str) -> None:
    with pytest.raises(ConfigError, match="at least two run folders, not 1"):
        run([seq])
    with pytest.raises(ConfigError, match="not 0"):
        run([])


@pytest.mark.parametrize("score", ["much", "nan", "inf", ""])
def test_a_score_is_a_number(seq: str, par: str, score: str) -> None:
    with pytest.raises(ConfigError, match=r"score='.*': must be a number"):
        run([seq, par, "--score", score])


def test_typo_in_a_flag_names_the_nearest(seq: str, par: str) -> None:
    with pytest.raises(ConfigError, match=r"--sequental: not expected. Did you mean '--sequential'\?"):
        run(["--sequental", seq, par])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (None, "", "'broken': no such folder"),
        ("notes.txt", "", "'broken': has neither summary.json nor progress.csv"),
        ("summary.json", '{"steps": 1', "summary.json: damaged"),
        ("progress.csv", "", "progress.csv: damaged"),
        ("episodes.csv", "step,env\n1,", "episodes.csv: damaged"),
    ],
)
def test_broken_runs_exit_2_and_name_the_file(
    seq: str, name: str | None, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path("broken")
    if name is not None:
        broken.mkdir()
        if name == "episodes.csv":
            summarised(broken)
        (broken / name).write_text(content)
    assert main(["compare", seq, "broken"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("comparison.png").exists()


def test_needs_neither_torch_nor_matplotlib_to_start() -> None:
    code = (
        "import sys; from paceline.cli.compare import run\n"
        "try: run(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_compares_without_torch(seq: str, par: str) -> None:
    code = f"import sys; from paceline.cli.compare import run; run({[seq, par]!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0

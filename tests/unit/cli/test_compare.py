from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.cli.compare import run
from paceline.errors import ConfigError


def folder(path: Path, fps: float, num_workers: int) -> str:
    path.mkdir()
    summary = {
        "algo": "ppo", "env": "CartPole-v1", "n_envs": 32, "num_workers": num_workers, "steps": 1000, "episodes": 10,
        "wall_s": 1.0, "fps": fps, "phases": {"collect": 0.5}, "finished": True, "stop_reason": "total_timesteps",
    }  # fmt: skip
    (path / "summary.json").write_text(json.dumps(summary))
    return str(path)


@pytest.fixture
def seq(tmp_path: Path) -> str:
    return folder(tmp_path / "seq", 1000.0, 0)


@pytest.fixture
def par(tmp_path: Path) -> str:
    return folder(tmp_path / "par", 1500.0, 2)


def test_prints_table_and_verdict(seq: str, par: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([seq, par]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["seq", "par"]
    assert any(line.split() == ["speed-up", "1.00x", "1.50x"] for line in out.splitlines())
    assert "par (2 workers) ran 1.50 times as fast as seq" in out
    assert "\x1b" not in out  # no colours in a pipe


def test_named_runs_are_the_same_as_listed_ones(seq: str, par: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([seq, par])
    listed = capsys.readouterr().out
    run(["--parallel", par, "--sequential", seq])
    assert capsys.readouterr().out == listed
    run([par, f"--sequential={seq}"])
    assert capsys.readouterr().out == listed


def test_too_few_runs(seq: str) -> None:
    with pytest.raises(ConfigError, match="at least two run folders, not 1"):
        run([seq])
    with pytest.raises(ConfigError, match="not 0"):
        run([])


def test_typo_in_a_flag_names_the_nearest(seq: str, par: str) -> None:
    with pytest.raises(ConfigError, match=r"--sequental: no such flag. Did you mean '--sequential'\?"):
        run(["--sequental", seq, par])


def test_missing_run_is_named(seq: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none'"):
        run([seq, str(tmp_path / "none")])

"""`paceline bench` end to end on short windows: what it reports, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paceline.cli import bench as command
from paceline.errors import ConfigError
from paceline.insight import bench
from paceline.insight.bench import Bench
from paceline.insight.windows import PHASES


def test_it_reports_all_three_in_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    file = tmp_path / "out" / "bench.json"
    words = ["--env", "CartPole-v1", "--n-envs", "8", "--n-steps", "16", "--group-size", "2", "--n-epochs", "1"]
    assert command.run([*words, "--num-workers", "2", "--rounds", "2", "--window-s", "0.05", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    for side in ("sequential", "parallel"):
        assert result[side]["steps_per_s"] > 0
        assert len(result[side]["windows"]) == 2
    assert result["parallel"]["num_workers"] == 2
    assert len(result["limit_windows"]) == 2
    ratios = np.array(result["parallel"]["windows"]) / np.array(result["sequential"]["windows"])
    assert result["speedup"] == pytest.approx(float(np.median(ratios)))
    assert set(result["phases"]) == set(PHASES)
    assert sum(result["phases"].values()) == pytest.approx(1.0)
    # Of two rounds nothing is concluded, but all settings have had their windows.
    learner = result["learner"]
    assert learner["current"] == {"grad_shards": 1, "learner_threads": 1}
    assert len(learner["settings"]) > 1
    assert all(len(one["windows"]) == 2 and one["updates_per_s"] > 0 for one in learner["settings"])
    assert learner["hint"] is None
    shown = capsys.readouterr().out
    assert "parallel, 2 workers" in shown
    assert "parallel / sequential" in shown


def test_ratios_are_taken_inside_each_round() -> None:
    """A machine that is twice as fast in the second round changes no ratio."""
    found = Bench(2, (10.0, 20.0, 10.0), (4.0, 8.0, 4.0), (8.0, 16.0, 8.0), {}, {})
    assert found.ratio("parallel", "sequential") == (2.0, 0.0)
    assert found.ratio("parallel", "limit") == pytest.approx((0.8, 0.0))


def test_by_default_there_are_no_more_workers_than_groups_and_envs_that_wait_have_a_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "core_budget", lambda: 8)
    file = tmp_path / "bench.json"
    words = [
        "--env",
        "paceline/Busy-v0",
        "--env-kwargs",
        "cpu_ms=0",
        "sleep_ms=1",
        "--n-envs",
        "4",
        "--group-size",
        "2",
    ]
    command.run([*words, "--n-steps", "8", "--no-learner", "--rounds", "1", "--window-s", "0.05", "--json", str(file)])
    result = json.loads(file.read_text())
    assert result["parallel"]["num_workers"] == 2
    assert result["limit_steps_per_s"] > 0
    assert result["parallel"]["memory_mb"] > result["sequential"]["memory_mb"]


@pytest.mark.parametrize(
    ("words", "message"),
    [("--num-workers 0", "needs at least 1 worker"), ("--rounds 0", "rounds=0"), ("--window-s -1", "window_s=-1")],
)
def test_what_makes_no_sense_is_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command.run(["--env", "CartPole-v1", *words.split()])

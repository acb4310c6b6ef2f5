"""`paceline bench` end to end on short windows: what it prints, not how fast it is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from paceline.cli import bench as command
from paceline.errors import ConfigError
from paceline.insight.windows import PHASES


def test_it_reports_limit_sequential_and_parallel(
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
    # Two rounds are too few for a recommendation, but every setting has been timed.
    assert isinstance(result["shortage"], str)
    learner = result["learner"]
    assert learner["current"] == {"grad_shards": 1, "learner_threads": 1}
    assert len(learner["settings"]) > 1
    assert all(len(one["windows"]) == 2 and one["updates_per_s"] > 0 for one in learner["settings"])
    assert learner["hint"] is None
    shown = capsys.readouterr().out
    assert "parallel, 2 workers" in shown
    assert "parallel / sequential" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [("--num-workers 0", "needs at least 1 worker"), ("--rounds 0", "rounds=0"), ("--window-s -1", "window_s=-1")],
)
def test_invalid_options_are_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command.run(["--env", "CartPole-v1", *words.split()])


def test_a_machine_that_others_used_is_named() -> None:
    side = {"steps_per_s": 1.0, "memory_mb": 5.0, "num_workers": 2}
    shares = dict.fromkeys(("env", "inference", "wait", "learn", "sync"), 0.2)
    ratios = {name: 1.0 for key in ("speedup", "share_of_limit") for name in (key, f"{key}_spread")}
    outcome: dict[str, Any] = {
        "sequential": side, "parallel": side, "phases": shares, "phases_sequential": shares, "limit_windows": [1.0],
        "limit_steps_per_s": 1.0, "learner": None, **ratios,
    }  # fmt: skip
    for shortage, lines in (("", 0), ("it got 0.4 of the 1.4 cores", 1)):
        console = Console(file=io.StringIO(), width=200)
        command._show(console, "E", 4, {**outcome, "shortage": shortage})
        assert isinstance(console.file, io.StringIO)
        said = console.file.getvalue()
        assert said.count("too little CPU to tell the speed of this machine: it got 0.4 of the 1.4 cores") == lines

"""`paceline tune` end to end on short windows: what it prints, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.cli import tune as command
from paceline.errors import ConfigError

SMALL = ["--env", "CartPole-v1", "--n-envs", "8", "--n-steps", "16", "--n-epochs", "1", "--num-workers", "0"]


def test_it_prints_speeds_and_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out" / "tune.json"
    assert command.run([*SMALL, "--rounds", "1", "--window-s", "0.01", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert result["num_workers"] == 0
    learner = result["learner"]
    assert learner["current"] == {"grad_shards": 1, "learner_threads": 1}
    assert [one["grad_shards"] for one in learner["settings"] if one["learner_threads"] == 1] == [1, 2, 4]
    assert all(one["updates_per_s"] > 0 for one in learner["settings"])
    assert 0 < learner["learn_share"] < 1
    shown = capsys.readouterr().out
    assert "CartPole-v1, 8 envs, no workers" in shown
    assert "No setting is faster beyond the noise" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--pipeline", "with pipeline, workers step envs during learning"),
        ("--rounds 0", "rounds=0"),
        ("--window-s -1", "window_s=-1"),
    ],
)
def test_invalid_options_are_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command.run([*SMALL, *words.split()])

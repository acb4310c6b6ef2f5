from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from paceline import cli
from paceline.config.algorithms import ALGORITHMS
from paceline.config.train_config import TrainConfig


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the training and records its arguments."""
    seen: dict[str, Any] = {"stop_reason": "total_timesteps"}

    def train(config: TrainConfig, *, argv: list[str] | None = None) -> types.SimpleNamespace:
        seen.update(config=config, argv=argv)
        return types.SimpleNamespace(stop_reason=seen["stop_reason"])

    module = types.ModuleType("paceline.train.run")
    module.train = train  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "paceline.train.run", module)
    monkeypatch.setattr("paceline.runtime.worker.set_title", lambda title: seen.update(title=title))
    monkeypatch.delenv("PACELINE_DEBUG", raising=False)
    return seen


def test_train_receives_the_config_and_the_command_line(calls: dict[str, Any]) -> None:
    argv = ["train", "ppo", "--env", "CartPole-v1", "--n-envs", "16", "--total-timesteps", "1e5"]
    assert cli.main(argv) == 0
    assert calls["config"] == TrainConfig.from_flat(env="CartPole-v1", n_envs=16, total_timesteps=100_000)
    assert calls["argv"] == ["paceline", *argv]
    assert calls["title"] == "paceline: train ppo CartPole-v1"


@pytest.mark.parametrize(("reason", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("duration", 0), (None, 0)])
def test_a_run_ended_by_a_signal_says_so(reason: str | None, code: int, calls: dict[str, Any]) -> None:
    calls["stop_reason"] = reason
    assert cli.main(["train", "ppo", "--env", "X-v0"]) == code


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "error: train: an algorithm comes first (ppo, impala, appo, a3c, dqn). Use paceline train ppo"),
        (["--env", "X-v0"], "error: train: an algorithm comes first (ppo, impala, appo, a3c, dqn)."),
        (["sac"], "error: sac: no such algorithm. Known: a3c, appo, dqn, impala, ppo."),
        (["pppo"], "error: pppo: no such algorithm. Did you mean 'ppo'?"),
        (["ppo"], "error: env: required"),
        (["ppo", "--env", "X-v0", "--n-evs", "3"], "error: --n-evs: no such flag. Did you mean '--n-envs'?"),
        (["ppo", "--env", "X-v0", "--batch-size", "7"], "error: batch_size=7: must divide"),
        (["ppo", "--config", "nowhere.yaml"], "error: config 'nowhere.yaml': cannot be read"),
    ],
)
def test_a_bad_command_exits_with_2_before_anything_starts(
    argv: list[str], said: str, calls: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", *argv]) == 2
    assert said in capsys.readouterr().err
    assert "config" not in calls


def test_help_describes_the_algorithms_in_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    lines = [line for line in shown if line.startswith("  ")]
    assert [line.split()[0] for line in lines] == list(ALGORITHMS)
    assert all(len(line.split()) > 5 and line.endswith(".") for line in lines)
    assert [line for line in shown if len(line) > 100] == []

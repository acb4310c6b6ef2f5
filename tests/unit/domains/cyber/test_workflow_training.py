"""Trials of a search are real runs: trained, interrupted, resumed and warm-started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.cli import main
from paceline.config.train_config import TrainConfig
from paceline.domains.cyber import command as cyber
from paceline.domains.cyber.gp_ucb import Belief, Floats
from paceline.domains.cyber.trials import read_trials
from paceline.domains.cyber.workflow import WORKFLOWS, workflow_name
from paceline.domains.cyber.workflow_training import WorkflowTrainer
from paceline.errors import ConfigError
from paceline.measure.record import Summary
from paceline.train import run as running

WORKFLOW = "op_server,enterprise,op_host,defender,user"


SMALL = (
    "--n-envs", "16", "--update-steps", "6", "--max-steps", "6", "--n-epochs", "1", "--num-workers", "0",
    "--n-eval-episodes", "1", "--quiet", "--red-agent", "bline",
)  # fmt: skip


def surest(points: Floats, tried: Floats, seen: Floats) -> Belief:
    return Belief(np.arange(len(points), dtype=np.float64), np.ones(len(points)))


def test_a_search_is_interrupted_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, calls = running.train, []

    def interrupted(config: TrainConfig, **options: Any) -> Summary:
        calls.append(config)
        summary = real(config, **options)
        return replace(summary, stop_reason="SIGINT") if len(calls) == 2 else summary

    monkeypatch.setattr("paceline.domains.cyber.workflow_training.train", interrupted)
    monkeypatch.setattr(cyber, "require_scikit_learn", lambda: None)
    monkeypatch.setattr(cyber, "gaussian_process", surest)
    folder = tmp_path / "search"
    words = ["cyber", "search", *SMALL, "--workflow", WORKFLOW, "--n-initial", "2", "--output-dir", str(folder)]
    words += ["--workflow-episodes", "16", "--total-episodes", "48"]
    assert main(words) == 130
    assert "1 workflow of 120 tried, 16 episodes" in capsys.readouterr().out
    assert main(words) == 2  # it is there already
    assert "--resume" in capsys.readouterr().err
    assert main([*words, "--resume", "--init-from", "elsewhere"]) == 2
    assert "init_from is None there and 'elsewhere' here" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0

    assert (calls[2].run.resume, calls[2].run.output_dir) == (True, calls[1].run.output_dir)
    trials = read_trials(folder)
    assert [trial.episodes for trial in trials] == [16, 16, 16]
    assert trials[0].workflow == WORKFLOW
    assert trials[2].workflow == workflow_name(WORKFLOWS[119])
    assert trials[2].upper == 119 + 2.0
    assert [config.env.env_kwargs["workflow"] for config in (calls[0], *calls[2:])] == [
        each.workflow for each in trials
    ]
    assert [config.run.init_from for config in (*calls[:2], calls[3])] == [
        None, folder / trials[0].folder, folder / trials[1].folder,
    ]  # fmt: skip
    assert all(trial.compliance is not None and 0.0 <= trial.compliance <= 1.0 for trial in trials)
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "search.csv", "search.json", "search.txt", "search.png",
    }  # fmt: skip


def test_a_search_without_evaluations_is_refused() -> None:
    config = TrainConfig.from_flat(env="paceline/WorkflowDefence-v0", n_eval_episodes=0, num_workers=0)
    with pytest.raises(ConfigError, match="n_eval_episodes=0: the search compares evaluation rewards"):
        WorkflowTrainer(config, [])

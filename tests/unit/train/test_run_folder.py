"""What a run leaves behind: every file, every tag, and an end in time."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.unit.measure.test_tracking import FakeRun, runs

from paceline.config.train_config import TrainConfig
from paceline.errors import EnvError, MissingExtra
from paceline.insight.runs.results import read_progress
from paceline.measure.folder import OWN_NAMES, TRACKING_ID
from paceline.measure.record import TAGS
from paceline.train.run import train

__all__ = ["runs"]  # a fixture

STEPS = 8 * 16


def config(folder: Path, **settings: Any) -> TrainConfig:
    small: dict[str, Any] = {
        "env": "CartPole-v1", "num_workers": 0, "n_envs": 8, "n_steps": 16, "hidden_sizes": (8,), "quiet": True,
        "n_eval_episodes": 1, "total_timesteps": 4 * STEPS, "output_dir": folder,
    }  # fmt: skip
    return TrainConfig.from_flat(**{**small, **settings})


def log(folder: Path) -> list[str]:
    return [line.split(maxsplit=3)[3] for line in (folder / "train.log").read_text().splitlines()]


def test_every_file_is_there_and_no_other(tmp_path: Path) -> None:
    train(config(tmp_path / "run"))
    assert {path.name for path in (tmp_path / "run").iterdir()} == set(OWN_NAMES) - {TRACKING_ID}


def test_tensorboard_reads_every_tag_at_the_steps_of_the_run(tmp_path: Path) -> None:
    train(config(tmp_path / "run", eval_freq=STEPS))
    events = EventAccumulator(str(tmp_path / "run" / "logs")).Reload()
    assert set(events.Tags()["scalars"]) == set(TAGS)
    assert [event.step for event in events.Scalars("time/fps")] == [STEPS * i for i in range(1, 5)]


def test_the_log_tells_the_run_and_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(config(folder))
    first = log(folder)
    assert first[0].startswith("ppo on CartPole-v1: 8 envs")
    assert any("episodes in this rollout | 8 envs |" in line for line in first)
    assert any(line.startswith("finished (total_timesteps): 512 steps") for line in first)
    train(config(folder, resume=True, total_timesteps=6 * STEPS))
    both = log(folder)
    assert both[: len(first)] == first
    assert any(line.startswith("finished (total_timesteps): 768 steps") for line in both[len(first) :])
    train(config(folder, overwrite=True))
    assert not any("768 steps" in line for line in log(folder))
    assert logging.getLogger("paceline").handlers == []


def test_the_log_tells_why_a_run_failed(tmp_path: Path) -> None:
    env = {"env": "paceline.envs.fault:FaultEnv", "env_kwargs": {"mode": "raise", "at_step": 5}}
    with pytest.raises(EnvError):
        train(config(tmp_path / "run", **env))
    assert any(line.startswith("error: env 0") for line in log(tmp_path / "run"))
    assert any(line.startswith("stopped (EnvError)") for line in log(tmp_path / "run"))


def test_a_timed_run_ends_within_one_rollout_of_its_budget(tmp_path: Path) -> None:
    summary = train(config(tmp_path / "run", total_timesteps=None, duration="1.2s", n_eval_episodes=0))
    assert summary.stop_reason == "duration"
    rows = read_progress(tmp_path / "run")
    ends = [row["time/time_elapsed"] for row in rows]
    assert len(rows) > 2
    assert ends[-2] < 1.2 <= summary.wall_s  # the last rollout was begun before the end, and was the last
    assert ends[-1] < 1.2 + rows[-1]["time/iteration_s"]


def test_episode_and_step_budgets_end_it_too(tmp_path: Path) -> None:
    summary = train(config(tmp_path / "run", total_timesteps=None, total_episodes=20))
    assert summary.stop_reason == "total_episodes"
    assert 20 <= summary.episodes < 20 + STEPS


def test_tracking_gets_the_rows_of_progress_csv_and_the_summary(tmp_path: Path, runs: list[FakeRun]) -> None:
    folder = tmp_path / "run"
    train(config(folder, track=True, eval_freq=2 * STEPS))
    (run,) = runs
    assert run.finished
    assert run.settings["config"]["env"]["env"] == "CartPole-v1"
    rows = read_progress(folder)
    assert [step for _, step in run.logged] == [row["steps"] for row in rows]
    for (values, _), row in zip(run.logged, rows, strict=True):
        assert {tag: pytest.approx(row[tag], rel=1e-6) for tag in values} == values
    assert run.summary == json.loads((folder / "summary.json").read_text())
    train(config(folder, track=True, resume=True, total_timesteps=5 * STEPS))
    assert runs[1].settings["id"] == run.settings["id"]


def test_tracking_without_wandb_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match="wandb"):
        train(config(tmp_path / "run", track=True))
    assert not (tmp_path / "run").exists()


def test_no_evaluation_where_none_is_wanted(tmp_path: Path) -> None:
    summary = train(config(tmp_path / "run", n_eval_episodes=0, eval_freq=STEPS))
    assert summary.final_eval is None

"""A run from config to summary: its folder, log and budgets, resuming it, and errors before and during training."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.unit.insight.runs.run_folders import read_progress
from tests.unit.measure.test_tracking import FakeRun, runs

from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError, EnvError, MissingExtra
from paceline.measure.clock import Clock
from paceline.measure.folder import EVENTS, LOGS, OWN_NAMES, TRACKING_ID
from paceline.measure.record import ACTIVITIES, TAGS, tensorboard_tag
from paceline.train import checkpoint
from paceline.train.play import play
from paceline.train.run import Run, open_folder, train
from paceline.train.stopping import StopNow

__all__ = ["runs"]  # a fixture

STEPS = 8 * 16
JUDGED = ("rollout/success_rate", "eval/success_rate")
"""Tags that envs without `is_success` do not have."""


def config(folder: Path, **settings: Any) -> TrainConfig:
    small: dict[str, Any] = {
        "env": "CartPole-v1", "num_workers": 0, "n_envs": 8, "n_steps": 16, "hidden_sizes": (8,), "quiet": True,
        "n_eval_episodes": 1, "total_timesteps": 4 * STEPS, "output_dir": folder,
    }  # fmt: skip
    return TrainConfig.from_flat(**{**small, **settings})


def log(folder: Path) -> list[str]:
    return [line.split(maxsplit=3)[3] for line in (folder / "train.log").read_text().splitlines()]


def test_a_run_writes_every_file_of_a_run_folder_and_no_other(tmp_path: Path) -> None:
    train(config(tmp_path / "run"))
    names = {path.name for path in (tmp_path / "run").iterdir()}
    (events,) = (name for name in names if name.startswith(EVENTS))
    assert names - {events} == set(OWN_NAMES) - {TRACKING_ID, LOGS}


def test_tensorboard_reads_every_tag_at_the_steps_of_the_run(tmp_path: Path) -> None:
    train(config(tmp_path / "run", eval_freq=STEPS))
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    of_workers = {tensorboard_tag(f"parallel/worker_{name}_frac") for name in ACTIVITIES}
    of_later_samples = {tensorboard_tag(tag) for tag in TAGS if tag.startswith("system/cpu_")} - {"usage/cpu_percent"}
    missing = {"train/std", *JUDGED, *of_workers, *of_later_samples}
    assert set(events.Tags()["scalars"]) - of_later_samples == set(map(tensorboard_tag, TAGS)) - missing
    assert [event.step for event in events.Scalars("time/fps")] == [STEPS * i for i in range(1, 5)]


def test_the_log_records_the_run_and_a_resumed_run_appends_to_it(tmp_path: Path) -> None:
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


def test_the_log_says_why_a_run_failed(tmp_path: Path) -> None:
    env = {"env": "paceline.envs.fault:FaultEnv", "env_kwargs": {"mode": "raise", "at_step": 5}}
    with pytest.raises(EnvError):
        train(config(tmp_path / "run", **env))
    assert any(line.startswith("error: env 0") for line in log(tmp_path / "run"))
    assert any(line.startswith("stopped (EnvError)") for line in log(tmp_path / "run"))


def test_a_timed_run_ends_within_one_rollout_of_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()  # each look at the clock takes 10 ms, so that the speed of the machine does not matter
    monkeypatch.setattr("paceline.train.build.Clock", lambda: Clock(now=lambda: next(ticks) / 100))
    summary = train(config(tmp_path / "run", total_timesteps=None, duration="5s", n_eval_episodes=0))
    assert summary.stop_reason == "duration"
    ends = [row["time/time_elapsed"] for row in read_progress(tmp_path / "run")]
    assert len(ends) > 2
    longest = max(after - before for before, after in pairwise([0.0, *ends]))
    assert ends[-2] < 5.0 <= summary.wall_s < 5.0 + longest + 0.5  # the last rollout begins within the budget


def test_a_run_ends_after_its_budget_of_episodes(tmp_path: Path) -> None:
    summary = train(config(tmp_path / "run", total_timesteps=None, total_episodes=20))
    assert summary.stop_reason == "total_episodes"
    assert 20 <= summary.episodes < 20 + STEPS


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_rollout_that_is_cut_off_is_known_also_if_a_library_replaces_the_exception(
    cut_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray raises a KeyboardInterrupt of its own if a signal handler raises. Any other one is not caught."""

    def wait(*_: Any, **__: Any) -> None:
        if cut_off:
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(StopNow):
                signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt

    with Run(saving(), folder=open_folder(saving(output_dir=tmp_path / "run"))) as run:
        monkeypatch.setattr(run.training.runtime, "wait", wait)
        if cut_off:
            assert run.go().stop_reason == "SIGINT"
            assert checkpoint.find(tmp_path / "run").name == checkpoint.step_name(0)
        else:
            with pytest.raises(KeyboardInterrupt):
                run.go()
        assert run.cut_off is cut_off


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


def test_tracking_without_wandb_is_an_error_and_creates_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match="wandb"):
        train(config(tmp_path / "run", track=True))
    assert not (tmp_path / "run").exists()


def test_without_evaluation_episodes_there_is_no_evaluation(tmp_path: Path) -> None:
    summary = train(config(tmp_path / "run", n_eval_episodes=0, eval_freq=STEPS))
    assert summary.final_eval is None


SAVING: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 4,
    "n_steps": 8,
    "num_workers": 0,
    "n_eval_episodes": 1,
    "quiet": True,
    "save_freq": 32,
}


def saving(**settings: Any) -> TrainConfig:
    """A run that saves a checkpoint after every rollout."""
    return TrainConfig.from_flat(**{**SAVING, **settings})


def test_resuming_from_an_earlier_checkpoint_renames_the_later_ones(tmp_path: Path) -> None:
    train(saving(total_timesteps=96, output_dir=tmp_path / "run"))
    folder = tmp_path / "run" / "checkpoints"
    assert [path.name for path in checkpoint.steps(folder)] == [checkpoint.step_name(n) for n in (32, 64, 96)]
    early = folder / checkpoint.step_name(32)
    summary = train(TrainConfig.from_run(tmp_path / "run", resume=early, total_timesteps=64))
    assert summary.steps == 64
    assert [path.name for path in checkpoint.steps(folder)] == [checkpoint.step_name(n) for n in (32, 64)]
    assert checkpoint.find(tmp_path / "run", resumable=True).name == checkpoint.step_name(64)
    assert (folder / f"abandoned_{checkpoint.step_name(96)}").is_dir()


def test_a_checkpoint_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    settings = {"total_timesteps": 64, "checkpoint_dir": tmp_path / "saved"}
    first = train(saving(output_dir=tmp_path / "a", **settings))
    with pytest.raises(ConfigError, match=r"saved.*step_0+64.*--resume"):
        train(saving(output_dir=tmp_path / "b", **settings))
    resumed = train(TrainConfig.from_run(tmp_path / "a", resume=True, total_timesteps=96))
    assert (first.steps, resumed.steps) == (64, 96), "checkpoints are found where the config says they are"
    train(saving(output_dir=tmp_path / "b", overwrite=True, **settings))
    assert [path.name for path in checkpoint.steps(tmp_path / "saved")][-1] == checkpoint.step_name(64)


def test_a_relative_checkpoint_dir_is_found_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    train(saving(output_dir=run, checkpoint_dir=Path("saved"), total_timesteps=64))
    monkeypatch.chdir("/")
    newest = tmp_path / "saved" / checkpoint.step_name(64)
    assert checkpoint.find(run) == newest
    assert play(run, episodes=1).snapshot == newest
    assert train(TrainConfig.from_run(run, resume=True, total_timesteps=96)).steps == 96
    assert checkpoint.find(run).parent == newest.parent


def test_a_model_cannot_be_resumed(tmp_path: Path) -> None:
    train(saving(total_timesteps=64, output_dir=tmp_path / "run"))
    with pytest.raises(CheckpointError, match="has only a model"):
        train(saving(total_timesteps=96, resume=tmp_path / "run" / "best_model", output_dir=tmp_path / "other"))
    for path in checkpoint.steps(tmp_path / "run" / "checkpoints"):
        path.rename(path.with_name(f"x{path.name}"))
    with pytest.raises(CheckpointError, match="contains no checkpoint"):
        train(TrainConfig.from_run(tmp_path / "run", resume=True))


def test_time_between_two_calls_of_go_is_not_training_time() -> None:
    with Run(saving(n_eval_episodes=0)) as run:
        first = run.go(steps=64)
        run.training.clock._began -= 1000.0
        second = run.go(steps=64)
        assert first.wall_s <= second.wall_s < first.wall_s + 100
        assert second.startup_s > 999


def test_the_first_update_has_the_full_learning_rate_and_the_last_still_learns(tmp_path: Path) -> None:
    train(saving(total_timesteps=128, lr_schedule="linear", learning_rate=0.01, output_dir=tmp_path / "run"))
    lines = (tmp_path / "run" / "progress.csv").read_text().splitlines()
    column = lines[0].split(",").index("train/learning_rate")
    assert [float(line.split(",")[column]) for line in lines[1:]] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])


def test_a_failed_start_leaves_no_descriptor_open() -> None:
    def memory_files() -> int:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return sum("memfd:paceline" in os.readlink(link) for link in links if os.path.lexists(link))

    before = memory_files()
    with pytest.raises(ConfigError, match="device"):
        Run(saving(device="mps"))
    assert memory_files() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"env": "Acrobot-v1"}, "obs is"),
        ({"hidden_sizes": (8,)}, "hidden_sizes is"),
        ({"n_envs": 8}, "n_envs is 4 there and 8 here"),
        ({"seed": 1}, "seed is 0 there and 1 here"),
    ],
)
def test_resuming_another_training_is_refused_with_the_difference(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    base: dict[str, Any] = {
        "env": "CartPole-v1",
        "n_envs": 4,
        "n_steps": 16,
        "batch_size": 64,
        "total_timesteps": 64,
        "num_workers": 0,
        "n_eval_episodes": 0,
        "quiet": True,
        "seed": 0,
        "hidden_sizes": (16,),
    }
    first = TrainConfig.from_flat(**base, output_dir=tmp_path / "run")
    with Run(first, folder=open_folder(first)) as run:
        run.go()
    other = TrainConfig.from_flat(**{**base, **change, "resume": tmp_path / "run", "output_dir": tmp_path / "other"})
    with pytest.raises(CheckpointError, match="belongs to another training") as caught:
        Run(other)
    assert said in str(caught.value)


def test_missing_initial_weights_are_found_before_the_folder_is_created(tmp_path: Path) -> None:
    settings = {"env": "CartPole-v1", "init_from": tmp_path / "runs" / "none", "output_dir": tmp_path / "runs" / "new"}
    with pytest.raises(CheckpointError, match=r"none: no such folder. Give the folder of a run.$"):
        open_folder(TrainConfig.from_flat(**settings))
    assert not (tmp_path / "runs").exists()

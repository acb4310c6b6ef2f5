"""What a run does with checkpoints that are there already, with a full disk, and with time between two calls."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError
from paceline.train import checkpoint
from paceline.train.run import Run, open_folder, train

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 4,
    "n_steps": 8,
    "num_workers": 0,
    "n_eval_episodes": 1,
    "quiet": True,
    "save_freq": 32,
}


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{**SMALL, **settings})


def test_what_was_just_written_is_never_pruned(tmp_path: Path) -> None:
    for step in (900, 950, 1000, 40):
        written = tmp_path / checkpoint.step_name(step)
        checkpoint.save(written, {"a": np.zeros(2)}, {})
    checkpoint.prune(tmp_path, 1, written)
    assert [path.name for path in checkpoint.steps(tmp_path)] == [checkpoint.step_name(40), checkpoint.step_name(1000)]


def test_going_on_from_an_earlier_checkpoint_sets_the_later_ones_aside(tmp_path: Path) -> None:
    train(config(total_timesteps=96, output_dir=tmp_path / "run"))
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
    first = train(config(output_dir=tmp_path / "a", **settings))
    with pytest.raises(ConfigError, match=r"saved.*step_0+64.*--resume"):
        train(config(output_dir=tmp_path / "b", **settings))
    resumed = train(TrainConfig.from_run(tmp_path / "a", resume=True, total_timesteps=96))
    assert (first.steps, resumed.steps) == (64, 96), "checkpoints are found where the config says they are"
    train(config(output_dir=tmp_path / "b", overwrite=True, **settings))
    assert [path.name for path in checkpoint.steps(tmp_path / "saved")][-1] == checkpoint.step_name(64)


def test_a_model_cannot_be_resumed(tmp_path: Path) -> None:
    train(config(total_timesteps=64, output_dir=tmp_path / "run"))
    with pytest.raises(CheckpointError, match="has only a model"):
        train(config(total_timesteps=96, resume=tmp_path / "run" / "best_model", output_dir=tmp_path / "other"))
    for path in checkpoint.steps(tmp_path / "run" / "checkpoints"):
        path.rename(path.with_name(f"x{path.name}"))
    with pytest.raises(CheckpointError, match="contains no checkpoint"):
        train(TrainConfig.from_run(tmp_path / "run", resume=True))


def test_a_full_disk_is_a_note_and_the_run_goes_on(tmp_path: Path) -> None:
    run_config = config(total_timesteps=96, output_dir=tmp_path / "run", n_eval_episodes=0)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Run(run_config, folder=open_folder(run_config)) as run:
            resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))  # less than a checkpoint, more than the logs
            summary = run.go()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert summary.steps == 96
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == []
    assert "not saved" in (tmp_path / "run" / "train.log").read_text()


def test_time_between_two_calls_is_not_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with Run(config(n_eval_episodes=0)) as run:
        first = run.go(steps=64)
        run.training.clock._began -= 1000.0  # a coffee break
        second = run.go(steps=64)
        assert first.wall_s <= second.wall_s < first.wall_s + 100
        assert second.startup_s > 999


def test_a_failed_start_leaves_no_descriptor_open() -> None:
    def memory_files() -> int:
        links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
        return sum("memfd:paceline" in os.readlink(link) for link in links if os.path.lexists(link))

    before = memory_files()
    with pytest.raises(ConfigError, match="device"):
        Run(config(device="mps"))
    assert memory_files() == before


def test_the_first_update_has_the_full_learning_rate_and_the_last_still_learns(tmp_path: Path) -> None:
    train(config(total_timesteps=128, lr_schedule="linear", learning_rate=0.01, output_dir=tmp_path / "run"))
    lines = (tmp_path / "run" / "progress.csv").read_text().splitlines()
    column = lines[0].split(",").index("train/learning_rate")
    assert [float(line.split(",")[column]) for line in lines[1:]] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])

"""DQN in batches, and self-play: the same weights for any number of workers, and after interruptions."""

from __future__ import annotations

import functools
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.inside import inside

from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError
from paceline.measure.record import Summary
from paceline.train.run import Run, open_folder

COMMON: dict[str, Any] = {
    "n_envs": 12,
    "group_size": 2,
    "batch_size": 16,
    "learning_starts": 60,
    "target_update": 7,
    "buffer_size": 600,
    "n_eval_episodes": 0,
    "quiet": True,
    "seed": 7,
    "total_timesteps": 900,
}
DQN: dict[str, dict[str, Any]] = {
    "episodes": {"env": "CartPole-v1", "episodes_per_batch": 2},
    "steps, prioritised, three at a time": {
        "env": "CartPole-v1",
        "n_steps": 8,
        "prioritized": True,
        "multi_step": 3,
        "epsilon_decay": 0.9,
        "epsilon_ladder": 3.0,
    },
    "Dict observations, action masks": {"env": "tests.games:Cards", "samples_per_insert": 2.0, "tau": 0.05},
    "images, frames stored once": {
        "env": "tests.games:Dots",
        "policy": "nature_cnn",
        "frame_stack": 2,
        "n_envs": 6,
        "n_steps": 6,
        "total_timesteps": 180,
        "learning_starts": 36,
        "learning_steps_per_batch": 2,
    },
    "self-play": {
        "env": "paceline/TicTacToe-v0",
        "opponents": {"random": 0.2, "minimax": 0.2, "self": 0.6},
        "snapshot_every": 20,
        "pool_size": 4,
        "opponent_sampling": "hardest",
    },
}
GAMES: dict[str, dict[str, Any]] = {
    "ppo": {"algo": "ppo", "n_steps": 8, "batch_size": 48},
    "ppo in a pipeline": {"algo": "ppo", "n_steps": 8, "batch_size": 48, "pipeline": True},
}


def config(case: dict[str, Any], workers: int, **more: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{"algo": "dqn", **COMMON, **case, "num_workers": workers, **more})


def of_ppo(case: str, workers: int, **more: Any) -> TrainConfig:
    dropped = ("learning_starts", "target_update", "buffer_size")
    settings = {key: value for key, value in {**COMMON, **DQN["self-play"]}.items() if key not in dropped}
    return TrainConfig.from_flat(**{**settings, **GAMES[case], "num_workers": workers, **more})


def train(it: TrainConfig, *, interrupt_in: int | None = None) -> Summary:
    """Run to the end, or press Ctrl-C after an update."""
    folder = open_folder(it) if it.run.output_dir else None
    with Run(it, folder=folder) as run:
        learner, update, count = inside(run).learner, inside(run).learner.update, 0

        def interrupting(batch: Any, progress: float) -> dict[str, float]:
            nonlocal count
            count += 1
            if count == interrupt_in:
                signal.raise_signal(signal.SIGINT)
            stats: dict[str, float] = update(batch, progress)
            return stats

        learner.update = interrupting
        return run.go()


@functools.cache
def reference(case: str) -> Summary:
    """One sequential run of each case."""
    return train(config(DQN[case], 0))


@pytest.mark.parametrize("case", DQN)
def test_any_number_of_workers_trains_the_same_weights(case: str) -> None:
    expected = reference(case)
    untrained = train(config(DQN[case], 0, learning_starts=expected.steps + 1, buffer_size=20_000))
    assert untrained.weights_sha256 != expected.weights_sha256, "it has learned something"
    # All numbers where groups are stepped apart, and where opponents are met; elsewhere one that divides them unevenly.
    for workers in (1, 2, 3) if case in ("episodes", "self-play") else (2,):
        found = train(config(DQN[case], workers))
        assert found.weights_sha256 == expected.weights_sha256, f"{workers} workers"
        assert (found.steps, found.episodes) == (expected.steps, expected.episodes)


@pytest.mark.parametrize("case", [case for case in DQN if case != "images, frames stored once"])
def test_an_interrupted_run_goes_on_where_it_was(case: str, tmp_path: Path) -> None:
    expected = reference(case)
    first = train(config(DQN[case], 2, output_dir=tmp_path / "cut"), interrupt_in=3)
    assert first.stop_reason == "SIGINT"
    assert first.steps < expected.steps
    last = train(config(DQN[case], 3, output_dir=tmp_path / "cut", resume=True))
    assert last.weights_sha256 == expected.weights_sha256
    assert (last.steps, last.episodes) == (expected.steps, expected.episodes)


@pytest.mark.parametrize("case", GAMES)
def test_self_play_of_ppo_is_the_same_with_any_number_of_workers_and_after_an_interruption(
    case: str, tmp_path: Path
) -> None:
    expected = train(of_ppo(case, 0))
    assert train(of_ppo(case, 3)).weights_sha256 == expected.weights_sha256
    first = train(of_ppo(case, 2, output_dir=tmp_path / "cut"), interrupt_in=4)
    assert first.steps < expected.steps
    last = train(of_ppo(case, 0, output_dir=tmp_path / "cut", resume=True))
    assert last.weights_sha256 == expected.weights_sha256


def test_without_its_replay_a_resumed_run_fills_a_new_one(tmp_path: Path) -> None:
    settings = {**DQN["episodes"], "save_replay": False}
    train(config(settings, 0, output_dir=tmp_path / "run"), interrupt_in=4)
    with Run(config(settings, 0, output_dir=tmp_path / "run", resume=True)) as run:
        assert inside(run).rollouts.stored == 0
        assert inside(run).rollouts._ingest.replay.head.min() > 0, (
            "heads continue after a resume: noise must not repeat"
        )
        assert inside(run).learner.n_updates > 0
        run.go()
        assert inside(run).rollouts.stored > 0
        assert np.isfinite(run.training.weights.vector.numpy()).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"buffer_size": 700}, "buffer_size is 600 there and 700 here"),
        ({"multi_step": 2}, "multi_step is 3 there and 2 here"),
        ({"opponents": {"random": 1.0}}, "opponents is"),
        ({"pool_size": 5}, "pool_size is 4 there and 5 here"),
    ],
)
def test_a_run_does_not_go_on_with_another_replay_or_pool(change: dict[str, Any], text: str, tmp_path: Path) -> None:
    train(config(DQN["self-play"], 0, output_dir=tmp_path / "run"), interrupt_in=2)
    with pytest.raises(CheckpointError, match=text):
        train(config({**DQN["self-play"], **change}, 0, output_dir=tmp_path / "run", resume=True))

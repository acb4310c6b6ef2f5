"""DQN: its statistics, its exploration, its Python class, and settings that do not fit."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.inside import inside

from paceline import DQN, PPO
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.train.run import Run

SMALL: dict[str, Any] = {"n_envs": 8, "group_size": 4, "learning_starts": 100, "n_eval_episodes": 0, "batch_size": 16}


def test_num_workers_none_chooses_the_number_of_workers() -> None:
    assert DQN("CartPole-v1", num_workers=None, episodes_per_batch=4).config.num_workers == "auto"


def test_the_statistics_of_dqn_are_in_progress_csv(tmp_path: Path) -> None:
    with DQN("CartPole-v1", num_workers=0, output_dir=tmp_path / "run", seed=1, **SMALL) as agent:
        agent.learn(n_episodes=40)
        assert agent.summary is not None
        assert agent.summary.episodes >= 40
    with (tmp_path / "run" / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["train/epsilon"]) == 1.0
    last = rows[-1]
    assert float(last["train/epsilon"]) < 1.0
    assert float(last["train/buffer_size"]) > 100
    assert float(last["train/n_updates"]) > 0
    assert 0 < float(last["train/loss"]) < np.inf


def test_the_statistics_of_a_league_are_in_progress_csv(tmp_path: Path) -> None:
    with DQN(
        "paceline/TicTacToe-v0", num_workers=0, output_dir=tmp_path / "run", opponents={"random": 0.5, "self": 0.5},
        snapshot_every=50, **SMALL,
    ) as agent:  # fmt: skip
        agent.learn(n_episodes=300)
    with (tmp_path / "run" / "progress.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["train/snapshots"]) >= 5
    assert 0 <= float(last["train/win_rate_random"]) <= 1
    assert 0 <= float(last["train/win_rate_self"]) <= 1
    assert np.isfinite(float(last["train/elo"]))


def test_the_progress_of_schedules_is_restored() -> None:
    config = TrainConfig.from_flat(
        algo="dqn", env="CartPole-v1", n_envs=8, num_workers=0, quiet=True, n_eval_episodes=0
    )
    with Run(config) as run, Run(config) as other:
        inside(run).learner._progress = 0.9
        inside(other).learner.load(inside(run).learner.state())
        assert np.all(inside(other).learner._progress == 0.9)


def test_predictions_explore_with_the_final_epsilon() -> None:
    obs = np.array([0.1, 0.2, -0.1, 0.0], np.float32)
    sure, curious = (DQN("CartPole-v1", num_workers=0, epsilon_end=epsilon) for epsilon in (0.0, 1.0))
    best, _ = sure.predict(obs)
    assert {sure.predict(obs, deterministic=False)[0] for _ in range(50)} == {best}
    assert {curious.predict(obs, deterministic=False)[0] for _ in range(50)} == {0, 1}
    assert {curious.predict(obs)[0] for _ in range(50)} == {best}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"env": "Pendulum-v1"}, "needs Discrete actions"),
        ({"buffer_size": "many"}, "number of transitions, or bytes"),
        ({"buffer_size": "900000GB"}, "of memory are free"),
        ({"buffer_size": 150, "learning_starts": 150}, "less than n_steps=4 or learning_starts=150 require"),
        ({"buffer_size": 150, "learning_starts": 8, "n_steps": 32}, "less than n_steps=32"),
        ({"learning_steps_per_batch": 3, "samples_per_insert": 2}, "Give one of the two"),
        ({"schedule": "async", "learning_steps_per_batch": 3}, "no batches in async mode"),
        ({"normalize_obs": True}, "scaled by newer statistics"),
        ({"epsilon_end": 1.5}, "epsilon_end"),
        ({"opponents": {"self": 1.0}}, "is not a two-player game"),
        ({"env": "paceline/Ludo-v0", "opponents": {"minimax": 1.0}}, "no player 'minimax' of ludo"),
        ({"env": "paceline/Ludo-v0", "opponents": {"random": 0.0}}, "at least one share must be positive"),
        ({"n_epochs": 4}, "It is a setting of ppo"),
    ],
)
def test_settings_that_do_not_fit_are_refused_by_name(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        DQN(**{"env": "CartPole-v1", "num_workers": 0, **SMALL, **settings}).learn(1)


def test_a_saved_agent_is_loaded_but_not_by_another_algorithm(tmp_path: Path) -> None:
    with DQN("CartPole-v1", num_workers=0, **SMALL) as agent:
        agent.learn(300)
        agent.save(tmp_path / "agent")
    loaded = DQN.load(tmp_path / "agent")
    obs = np.array([0.1, 0.2, -0.1, 0.0], np.float32)
    assert loaded.predict(obs) == agent.predict(obs)
    with pytest.raises(Exception, match="dqn"):
        PPO.load(tmp_path / "agent")

"""Agents whose learning rate or clip range is a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.train.test_agent import OBS, SMALL

from paceline import A3C, APPO, DQN, IMPALA, PPO
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.train.agent import Agent
from paceline.train.callbacks import Moment
from paceline.train.run import train


def falling(left: float) -> float:
    """A schedule that has an import path."""
    return 0.02 * left


def linear(start: float) -> Any:
    """A schedule as in the documentation of stable-baselines3: a function inside a function has no import path."""

    def value(left: float) -> float:
        return start * left

    return value


def test_schedules_may_be_functions_with_the_same_bits_for_any_number_of_workers() -> None:
    named: dict[str, Any] = {
        "learning_rate": 0.02,
        "lr_schedule": "linear",
        "clip_range": 0.05,
        "clip_schedule": "linear",
    }
    results = []
    for settings in (named, {"learning_rate": falling, "clip_range": linear(0.05)}):
        for workers in (0, 2):
            with PPO("CartPole-v1", **{**SMALL, **settings, "num_workers": workers, "n_epochs": 8}) as agent:
                agent.learn(256)
                results.append(agent.get_weights().tobytes())
    assert len(set(results)) == 1
    with PPO("CartPole-v1", **SMALL, n_epochs=8, learning_rate=falling, clip_range=0.05) as agent:
        agent.learn(256)
        assert agent.get_weights().tobytes() not in results, "the clip range matters"


@pytest.mark.parametrize("cls", [IMPALA, APPO, A3C, DQN])
def test_every_algorithm_takes_a_function_as_learning_rate(cls: type[Agent]) -> None:
    rates = []

    class Rates:
        def on_update(self, moment: Moment) -> None:
            rates.append((moment.steps, moment.train["learning_rate"]))

    with cls("CartPole-v1", num_workers=2, n_envs=4, n_eval_episodes=0, learning_rate=linear(0.01)) as agent:
        agent.learn(2000, callbacks=[Rates()])
    assert rates[0][1] >= rates[-1][1]
    assert 0 <= rates[-1][1] < 0.01


def test_a_function_with_an_import_path_is_saved_and_resumed(tmp_path: Path) -> None:
    settings = {**SMALL, "learning_rate": falling, "clip_schedule": "cosine"}
    with PPO("CartPole-v1", **settings, total_timesteps=256) as whole:
        whole.learn()
    run = tmp_path / "run"
    with PPO("CartPole-v1", **settings, total_timesteps=256, output_dir=run, stop_at_score=-1) as first:

        class Stop:
            def on_update(self, moment: Moment) -> bool:
                return moment.steps < 128

        first.learn(callbacks=[Stop()])
    saved = yaml.safe_load((run / "config.yaml").read_text())["training"]
    assert (saved["learning_rate"], saved["clip_schedule"]) == (f"{__name__}:falling", "cosine")
    summary = train(TrainConfig.from_run(run, resume=True))
    assert summary.steps == 256
    assert PPO.load(run).get_weights().tobytes() == whole.get_weights().tobytes()


def test_a_function_without_an_import_path_must_be_passed_again_to_learn(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with PPO("CartPole-v1", **SMALL, learning_rate=linear(0.01), output_dir=run) as agent:
        agent.learn(64)
    loaded = PPO.load(run)
    assert loaded.predict(OBS) == agent.predict(OBS)
    with pytest.raises(
        ConfigError, match=r"learning_rate: the run used <Python object .*linear.* is not saved. Pass it"
    ):
        loaded.learn(64)
    with pytest.raises(ConfigError, match=r"learning_rate: the run used <Python object"):
        train(TrainConfig.from_run(run, resume=True, total_timesteps=128))
    with PPO.load(run, learning_rate=linear(0.01)) as again:
        again.learn(64)
    with PPO("CartPole-v1", **SMALL, learning_rate=linear(0.01), output_dir=run, resume=True) as resumed:
        resumed.learn(64)
        assert resumed.summary is not None
        assert resumed.summary.steps == 128

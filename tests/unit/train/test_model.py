"""A policy for prediction: built from a config, with the weights and settings of a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.games import Drift

from paceline import PPO
from paceline.config.names import REMOVED
from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError
from paceline.train import model
from paceline.train.checkpoint import Snapshot, load

SMALL: dict[str, Any] = {
    "n_envs": 4,
    "group_size": 2,
    "n_steps": 16,
    "batch_size": 64,
    "num_workers": 0,
    "n_eval_episodes": 0,
    "seed": 3,
    "hidden_sizes": (16,),
}


def weights(agent: PPO) -> bytes:
    return agent._current().weights.numpy().tobytes()


def test_a_model_is_built_from_a_snapshot_that_fits(tmp_path: Path) -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", **SMALL)
    fresh = model.load(config)
    agent = PPO("CartPole-v1", **SMALL)
    with agent:
        agent.learn(64)
    agent.save(tmp_path / "m")
    snapshot = load(tmp_path / "m")
    taken = model.load(config, snapshot)
    assert taken.weights.numpy().tobytes() == weights(agent) != fresh.weights.numpy().tobytes()
    with pytest.raises(CheckpointError, match="activation is 'tanh' there and 'relu' here"):
        model.load(config.merge(activation="relu"), snapshot)


def drift(**settings: Any) -> model.Model:
    return model.load(TrainConfig.from_flat(env=Drift, **{**SMALL, "normalize_obs": True, **settings}))


def test_loaded_arrays_change_weights_and_statistics_of_observations() -> None:
    source, target = drift(seed=1), drift(seed=2)
    assert source.obs_norm is not None
    source.obs_norm.update({"obs": np.random.default_rng(0).normal(50.0, 10.0, (100, 1, 3)).astype(np.float32)})
    obs = np.array([55.0, 45.0, 50.0])
    assert not np.array_equal(source.predictor(obs), target.predictor(obs))
    target.load_arrays(source.arrays())
    np.testing.assert_array_equal(source.predictor(obs), target.predictor(obs))
    assert target.weights.data_ptr() != source.weights.data_ptr()
    plain = drift(normalize_obs=False)
    assert set(plain.arrays()) == {"learner/weights"}


def snapshot(**meta: Any) -> Snapshot:
    return Snapshot(Path("somewhere"), {}, meta)


def test_saved_settings_are_those_of_all_sections_without_the_settings_of_the_run() -> None:
    sections = {
        "env": {"env": "CartPole-v1", "n_envs": 4},
        "run": {"algo": "ppo", "seed": 3, "output_dir": "runs/a", "resume": True, "overwrite": True, "quiet": True},
    }
    found = model.saved_settings(snapshot(config=sections))
    assert found == {"env": "CartPole-v1", "n_envs": 4, "algo": "ppo", "seed": 3}


def test_settings_that_no_longer_exist_are_left_out() -> None:
    assert REMOVED
    sections = {"run": dict.fromkeys(REMOVED, 1)}
    assert model.saved_settings(snapshot(config=sections)) == {}


@pytest.mark.parametrize("meta", [{}, {"config": None}, {"config": {"run": 3}}])
def test_a_snapshot_without_settings_is_an_error_that_names_it(meta: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="somewhere: contains no settings"):
        model.saved_settings(snapshot(**meta))


@pytest.mark.parametrize("name", ["env", "eval_env"])
def test_an_env_that_was_a_python_object_must_be_passed_again(name: str) -> None:
    config = TrainConfig.from_flat(**{"env": "CartPole-v1", **SMALL, name: Drift})
    saved = model.saved_settings(snapshot(config=config.to_dict()))
    with pytest.raises(ConfigError, match=rf"the {name} was a Python object.*load\(path, {name}=\.\.\.\)"):
        model.require_text(snapshot(), saved)
    model.require_text(snapshot(), {**saved, name: "CartPole-v1"})
    model.require_text(snapshot(), {**saved, name: None})

"""IMPALA and APPO: the weights that workers act with, and settings that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.train.async_runs import config

from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError
from paceline.train.run import Run, train


@pytest.mark.parametrize("algo", ["impala", "appo"])
@pytest.mark.parametrize("steps", [64, 128])
def test_workers_of_a_resumed_or_warm_started_run_act_with_its_weights(algo: str, steps: int, tmp_path: Path) -> None:
    """Snapshots take turns between two buffers: after an odd and after an even number of versions."""
    small = {"num_workers": 0, "n_eval_episodes": 0, "normalize_obs": True, "env": "tests.games:Drift"}
    first = config(algo, output_dir=tmp_path / "run", **small).merge(total_timesteps=steps)
    train(first)
    warm = config(algo, **small, init_from=tmp_path / "run")
    for settings in (TrainConfig.from_run(tmp_path / "run", resume=True, total_timesteps=1280, quiet=True), warm):
        with Run(settings) as run:
            arena = run.training.arena
            seen = arena["snapshots"][run.training.weights.version % 2]
            expected = np.concatenate([arena["weights"], arena["norm/obs"].reshape(-1)])
            assert expected.any()
            np.testing.assert_array_equal(seen, expected)


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    train(config("impala", output_dir=tmp_path / "run"))
    with pytest.raises(CheckpointError, match="algo"):
        train(config("appo", output_dir=tmp_path / "other", resume=tmp_path / "run"))


def test_the_lag_grows_with_sync_every() -> None:
    def lag(sync_every: int) -> float:
        return train(config("impala", num_workers=0, sync_every=sync_every, n_eval_episodes=0)).lag["mean"]

    assert lag(4) > lag(1)


@pytest.mark.parametrize(
    ("algo", "settings", "text"),
    [
        ("impala", {"normalize_reward": True}, "normalize_reward: needs every env's steps in order"),
        ("impala", {"sync_every": 9, "max_lag": 8}, "sync_every=9: must not be above max_lag=8"),
        ("impala", {"clip_range": 0.2}, "It is a setting of ppo and appo, not of impala"),
        ("impala", {"on_lag": "wait"}, "on_lag"),
        ("appo", {"trust_env_state": True}, "trust_env_state: unsupported with appo, whose envs never pause"),
        ("ppo", {"max_lag": 3}, "It is a setting of impala and appo, not of ppo"),
    ],
)
def test_settings_that_do_not_fit_are_refused(algo: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(config(algo, **settings))
    assert text in str(caught.value)

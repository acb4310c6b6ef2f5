"""IMPALA, APPO and A3C as a user meets them: the same evaluation, checkpoints, resume and callbacks as PPO."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline import A3C, APPO, IMPALA
from paceline.config.train_config import TrainConfig
from paceline.errors import CheckpointError, ConfigError
from paceline.train import checkpoint
from paceline.train.build import build
from paceline.train.run import Run, train

ALGOS = ["impala", "appo", "a3c"]
SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 8,
    "n_steps": 8,
    "total_timesteps": 640,
    "n_eval_episodes": 2,
    "num_workers": 2,
    "quiet": True,
    "seed": 4,
}


def config(algo: str, **settings: Any) -> TrainConfig:
    return TrainConfig.from_flat(**{"algo": algo, **SMALL, **settings})


def test_a3c_reserves_nothing_that_only_a_learning_driver_needs() -> None:
    with closing(build(config("a3c", num_workers=0))) as training:
        held = {field.name for field in training.arena.fields}
    assert {"live", "0/reward", "learning/reward"} <= held
    assert held.isdisjoint({"samples", "order", "grads", "terms", "snapshots"})


@pytest.mark.parametrize("algo", ALGOS)
def test_a_run_folder_has_all_that_a_ppo_run_has_and_the_lag(algo: str, tmp_path: Path) -> None:
    summary = train(config(algo, output_dir=tmp_path / "run", save_freq=320, eval_freq=320))
    assert summary.steps >= 640
    assert summary.final_eval is not None
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")
    assert (tmp_path / "run" / "best_model").is_dir()
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(kept["lag"]) == {"mean", "p50", "p90", "p99", "max"}
    assert sum(kept["lag_counts"].values()) > 0
    assert kept["algo"] == algo
    with (tmp_path / "run" / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary.iterations
    assert all(np.isfinite(float(row["train/loss"])) for row in rows)


@pytest.mark.parametrize("algo", ALGOS)
def test_without_workers_a_seed_is_a_run(algo: str) -> None:
    once, again = (train(config(algo, num_workers=0, n_eval_episodes=0)) for _ in range(2))
    assert once.weights_sha256 == again.weights_sha256
    assert once.weights_sha256 != train(config(algo, num_workers=0, n_eval_episodes=0, seed=5)).weights_sha256


@pytest.mark.parametrize("algo", ALGOS)
def test_a_resumed_run_goes_on_with_counters_weights_and_optimiser(algo: str, tmp_path: Path) -> None:
    first = train(config(algo, output_dir=tmp_path / "run"))
    resumed = TrainConfig.from_run(tmp_path / "run", resume=True, total_timesteps=1280)
    last = train(resumed)
    assert (last.algo, last.steps >= 1280, last.episodes >= first.episodes) == (algo, True, True)
    assert last.iterations > first.iterations
    newest = checkpoint.load(checkpoint.find(tmp_path / "run", resumable=True)).arrays
    assert any(key.startswith("learner/optimiser/") and value.any() for key, value in newest.items())


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


@pytest.mark.parametrize("agent", [IMPALA, A3C])
def test_a_loaded_agent_goes_on_from_its_weights(agent: Any, tmp_path: Path) -> None:
    settings = {key: value for key, value in SMALL.items() if key not in ("env", "total_timesteps")}
    still = {**settings, "learning_rate": 1e-30}
    with agent("CartPole-v1", **still) as one:
        one.learn(total_timesteps=64)
        one.save(tmp_path / "model")
    saved = checkpoint.load(tmp_path / "model").arrays["learner/weights"]
    with agent.load(tmp_path / "model", **{**still, "seed": 99}) as other:
        other.learn(total_timesteps=640)
        other.save(tmp_path / "later")
    np.testing.assert_allclose(checkpoint.load(tmp_path / "later").arrays["learner/weights"], saved, atol=1e-20)


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    train(config("impala", output_dir=tmp_path / "run"))
    with pytest.raises(CheckpointError, match="algo"):
        train(config("appo", output_dir=tmp_path / "other", resume=tmp_path / "run"))


@pytest.mark.parametrize("agent", [IMPALA, APPO, A3C])
def test_agents_learn_predict_save_load_and_call_back(agent: Any, tmp_path: Path) -> None:
    seen = []

    class Watch:
        def on_rollout(self, moment: Any) -> None:
            seen.append("rollout")

        def on_update(self, moment: Any) -> bool:
            seen.append("update")
            assert moment.train["n_updates"] > 0
            return len(seen) < 6

    settings = {key: value for key, value in SMALL.items() if key not in ("env", "total_timesteps")}
    with agent("CartPole-v1", **settings) as one:
        one.learn(total_timesteps=100_000, callbacks=[Watch()])
        action = one.predict(np.zeros(4, np.float32))
        one.save(tmp_path / "model")
    assert seen == ["rollout", "update"] * 3
    assert one.summary.stop_reason.endswith("Watch")
    assert agent.load(tmp_path / "model").predict(np.zeros(4, np.float32)) == action


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("workers", [0, 3])
def test_every_kind_of_env_and_policy_goes_through(algo: str, workers: int) -> None:
    small = {"n_envs": 6, "group_size": 1, "num_workers": workers, "n_eval_episodes": 0, "total_timesteps": 200}
    envs: dict[str, dict[str, Any]] = {
        "tests.games:Drift": {"normalize_obs": True},
        "tests.games:Cards": {},
        "tests.games:Dots": {"policy": "nature_cnn", "n_steps": 4, "total_timesteps": 48},
    }
    for env, more in envs.items():
        summary = train(config(algo, **{**small, "env": env, **more}))
        assert summary.steps >= small["total_timesteps"] or "Dots" in env
        assert summary.dropped_steps < summary.steps


@pytest.mark.parametrize("on_lag", ["stall", "drop", "mask"])
@pytest.mark.parametrize("max_lag", [1, 3])
def test_the_measured_lag_never_exceeds_its_bound(on_lag: str, max_lag: int) -> None:
    summary = train(
        config("impala", n_steps=4, total_timesteps=3000, max_lag=max_lag, on_lag=on_lag, slots_per_worker=4,
               batch_slots=1, n_eval_episodes=0)
    )  # fmt: skip
    assert summary.lag["max"] <= max_lag


def test_weights_that_are_kept_for_longer_are_older() -> None:
    def lag(sync_every: int) -> float:
        return train(config("impala", num_workers=0, sync_every=sync_every, n_eval_episodes=0)).lag["mean"]

    assert lag(4) > lag(1)


def test_workers_of_a3c_may_differ_in_learning_rate_and_entropy() -> None:
    settings = config("a3c", learning_rate=1e-3, ent_coef=0.01, lr_spread=4, ent_spread=2).training
    found = [settings.of_worker(worker, 3) for worker in range(3)]  # type: ignore[attr-defined]
    assert [one.learning_rate for one in found] == pytest.approx([2.5e-4, 1e-3, 4e-3])
    assert [one.ent_coef for one in found] == pytest.approx([0.005, 0.01, 0.02])
    assert settings.of_worker(0, 1).learning_rate == 1e-3  # type: ignore[attr-defined]


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_both_optimisers_of_a3c_move_the_weights_of_all_workers(optimizer: str) -> None:
    summary = train(config("a3c", optimizer=optimizer, n_eval_episodes=0))
    other = train(config("a3c", num_workers=0, optimizer=optimizer, n_eval_episodes=0))
    assert summary.iterations > 0
    assert summary.weights_sha256 != other.weights_sha256


@pytest.mark.parametrize(
    ("algo", "settings", "said"),
    [
        ("impala", {"normalize_reward": True}, "normalize_reward: needs every env's steps in order"),
        ("impala", {"sync_every": 9, "max_lag": 8}, "sync_every=9: must not be above max_lag=8"),
        ("impala", {"clip_range": 0.2}, "It is a setting of ppo, appo, not of impala"),
        ("impala", {"on_lag": "wait"}, "on_lag"),
        ("impala", {"batch_slots": 5}, "batch_slots=5: 2 worker(s) with slots_per_worker=2 can fill 4"),
        ("impala", {"num_workers": 0, "batch_slots": 3}, "batch_slots=3: 1 worker(s)"),
        ("appo", {"trust_env_state": True}, "trust_env_state: unsupported with appo, whose envs never pause"),
        ("a3c", {"batch_size": 32}, "It is a setting of ppo, impala, appo, dqn, not of a3c"),
        ("a3c", {"device": "cuda"}, "device='cuda': in a3c the workers learn"),
        ("ppo", {"max_lag": 3}, "It is a setting of impala, appo, not of ppo"),
        ("a3c", {"lr_spread": 0.5}, "lr_spread=0.5"),
    ],
)
def test_what_does_not_fit_is_refused(algo: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train(config(algo, **settings))
    assert said in str(caught.value)

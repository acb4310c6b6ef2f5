"""Batches of the slots that are full first, and slots that are too old: with scripted workers, and in whole runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.train.async_runs import ALGOS, SMALL, config
from tests.unit.train.scripted_workers import SIZE, STEPS, Stage

from paceline import A3C, APPO, IMPALA
from paceline.config.train_config import TrainConfig
from paceline.spec import EnvSpec
from paceline.train import checkpoint
from paceline.train.run import train


@pytest.fixture
def spec() -> EnvSpec:
    import gymnasium as gym

    return EnvSpec.of(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))


def test_full_slots_are_learned_first_and_a_slow_worker_delays_no_batch(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=9, on_lag="drop")
    stage.workers.begin(1, 0)  # and is never done
    for version in range(5):
        stage.workers.begin(0, version)
        stage.workers.done(0, version)
        assert stage.rollouts.next(version).version == version
        stage.rollouts.release()
    assert stage.rollouts.learned_steps == 5 * STEPS * SIZE


def test_stalling_waits_for_the_slot_that_would_become_too_old(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=2)
    stage.workers.begin(1, 0)
    for version in range(2):
        stage.workers.done(0, version)
        stage.rollouts.next(version)
        stage.rollouts.release()
    stage.workers.done(0, 2)
    # After this batch version 3 is next, and the slot of worker 1 would be 3 updates old.
    stage.workers.script.append(lambda: None)
    stage.workers.script.append(lambda: stage.workers.done(1, 0))
    batch = stage.rollouts.next(2)
    assert batch.version == 0, "the oldest first"
    assert stage.rollouts.last.lags == [2]
    stage.check()


@pytest.mark.parametrize("on_lag", ["stall", "drop"])
def test_slots_that_are_too_old_are_dropped_counted_and_requested_again(spec: EnvSpec, on_lag: Any) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=2, on_lag=on_lag)
    stage.workers.done(1, 0)
    stage.workers.done(0, 5)
    batch = stage.rollouts.next(5)
    assert (batch.version, stage.rollouts.last.lags) == (5, [0])
    assert stage.rollouts.dropped_steps == STEPS * SIZE
    assert [into for _, into in stage.workers.requests[1]] == [1, 0]
    stage.check()


def test_masked_slots_are_in_the_batch_as_invalid_steps(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=2, max_lag=2, on_lag="mask")
    stage.workers.done(1, 0)
    stage.workers.done(0, 5)
    batch = stage.rollouts.next(5)
    assert batch.valid.sum(0).tolist() == [0, 0, STEPS, STEPS]
    assert (stage.rollouts.last.lags, stage.rollouts.dropped_steps) == ([0], STEPS * SIZE)
    stage.check()


def test_a_batch_never_consists_of_masked_slots_only(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=1, max_lag=2, on_lag="mask")
    stage.workers.done(1, 0)
    stage.workers.script.append(lambda: stage.workers.done(0, 5))
    assert stage.rollouts.next(5).version == 5
    stage.check()


def test_slots_of_workers_with_fewer_groups_leave_the_rest_of_the_batch_invalid(spec: EnvSpec) -> None:
    stage = Stage(spec, workers=2, groups=3, batch_slots=2, max_lag=9)
    stage.workers.done(1, 0)
    stage.workers.done(0, 0)
    batch = stage.rollouts.next(0)
    assert batch.valid.sum(0).tolist() == [STEPS] * 6 + [0] * 2
    stage.check()


def test_times_and_episodes_cover_all_slots_since_the_last_batch(spec: EnvSpec) -> None:
    stage = Stage(spec, batch_slots=2, max_lag=9)
    stage.workers.done(0, 0)
    stage.workers.done(0, 0)
    stage.rollouts.next(0)
    assert [times.total_s for times in stage.rollouts.last.times] == [4.0, 0.0]
    assert len(stage.rollouts.last.finished) == 0


@pytest.mark.parametrize("algo", ALGOS)
def test_a_run_folder_has_the_files_of_a_ppo_run_and_the_lag(algo: str, tmp_path: Path) -> None:
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
def test_without_workers_a_seed_determines_the_weights(algo: str) -> None:
    once, again = (train(config(algo, num_workers=0, n_eval_episodes=0)) for _ in range(2))
    assert once.weights_sha256 == again.weights_sha256
    assert once.weights_sha256 != train(config(algo, num_workers=0, n_eval_episodes=0, seed=5)).weights_sha256


@pytest.mark.parametrize("algo", ALGOS)
def test_a_resumed_run_continues_with_counters_weights_and_optimiser(algo: str, tmp_path: Path) -> None:
    first = train(config(algo, output_dir=tmp_path / "run"))
    resumed = TrainConfig.from_run(tmp_path / "run", resume=True, total_timesteps=1280)
    last = train(resumed)
    assert (last.algo, last.steps >= 1280, last.episodes >= first.episodes) == (algo, True, True)
    assert last.iterations > first.iterations
    newest = checkpoint.load(checkpoint.find(tmp_path / "run", resumable=True)).arrays
    assert any(key.startswith("learner/optimiser/") and value.any() for key, value in newest.items())


@pytest.mark.parametrize("agent", [IMPALA, A3C])
def test_a_loaded_agent_continues_from_its_weights(agent: Any, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("agent", [IMPALA, APPO, A3C])
def test_agents_learn_predict_save_load_and_call_callbacks(agent: Any, tmp_path: Path) -> None:
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
def test_every_kind_of_env_and_policy_can_be_trained(algo: str, workers: int) -> None:
    small = {"n_envs": 6, "group_size": 1, "num_workers": workers, "n_eval_episodes": 0, "total_timesteps": 200}
    envs: dict[str, dict[str, Any]] = {
        "tests.games:Drift": {"normalize_obs": True},
        "tests.games:Cards": {},
        "tests.games:Dots": {"policy": "nature_cnn", "n_steps": 4, "total_timesteps": 48},
    }
    for env, more in envs.items():
        asked = config(algo, **{**small, "env": env, **more})
        summary = train(asked)
        assert summary.steps >= (asked.run.total_timesteps or 0)
        assert summary.dropped_steps < summary.steps


@pytest.mark.parametrize("on_lag", ["stall", "drop", "mask"])
@pytest.mark.parametrize("max_lag", [1, 3])
def test_the_measured_lag_never_exceeds_its_bound(on_lag: str, max_lag: int) -> None:
    summary = train(
        config("impala", n_steps=4, total_timesteps=3000, max_lag=max_lag, on_lag=on_lag, slots_per_worker=4,
               batch_slots=1, n_eval_episodes=0)
    )  # fmt: skip
    assert summary.lag["max"] <= max_lag

"""Envs that fail, seen from Python: one error that names the env and the cause, and nothing left running."""

from __future__ import annotations

import json
import multiprocessing
import socket
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from tests.games import Counter

from paceline import PPO
from paceline.config.train_config import TrainConfig
from paceline.envs.fault import FaultEnv
from paceline.errors import ConfigError, EnvError, PacelineError, WorkerDied, WorkerError, WorkerHung
from paceline.measure.folder import RunFolder
from paceline.train.run import Run, open_folder

FAULT = "paceline.envs.fault:FaultEnv"


def config(env: Any = FAULT, *, workers: int = 2, env_kwargs: dict[str, Any] | None = None, **more: Any) -> TrainConfig:
    settings = {
        "n_envs": 8,
        "n_steps": 16,
        "batch_size": 64,
        "n_epochs": 1,
        "total_timesteps": 10_000,
        "n_eval_episodes": 0,
        "quiet": True,
        "seed": 5,
    }
    return TrainConfig.from_flat(
        **{**settings, "env": env, "num_workers": workers, "env_kwargs": env_kwargs or {}, **more}
    )


def train(it: TrainConfig, folder: RunFolder | None = None) -> None:
    with Run(it, folder=folder) as run:
        run.go()


def failure(kind: type[PacelineError], it: TrainConfig, folder: RunFolder | None = None) -> str:
    with pytest.raises(kind) as caught:
        train(it, folder)
    return str(caught.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_that_raises_names_env_seed_episode_step_and_action(workers: int, tmp_path: Path) -> None:
    kwargs = {"mode": "raise", "env_index": 6, "run_seed": 5, "at_episode": 2, "at_step": 3, "episode_length": 20}
    it = config(workers=workers, env_kwargs=kwargs, output_dir=tmp_path / "run", save_freq=200)
    text = failure(WorkerError if workers else EnvError, it, open_folder(it))
    assert "env 6 (seed 5, episode 2) raised in step 3 with action " in text
    assert "RuntimeError: fault in step, as asked" in text
    if workers:
        assert "worker 1 (pid " in text
        assert "Its traceback:" in text
        assert 'fault.py", line' in text, "the traceback of the worker contains the env"
    # After 43 rows of 8 envs there is a checkpoint, which the error names.
    named = text.rsplit("The last checkpoint is ", 1)[1]
    assert (Path(named) / "manifest.json").is_file()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["finished"] is False
    assert summary["stop_reason"] == ("WorkerError" if workers else "EnvError")


def test_a_constructor_that_raises_in_one_worker_stops_all_before_training(tmp_path: Path) -> None:
    """The second call would succeed, but an exception is a bug: it is reported, not retried."""

    def make() -> gym.Env[Any, Any]:
        once = tmp_path / "raised"
        if multiprocessing.current_process().name == "paceline-worker-1" and not once.exists():
            once.touch()
            raise OSError("no licence left")
        return FaultEnv()

    text = failure(WorkerError, config(make, env_threads=1))  # without an env that is only tried, and may fail
    assert "worker 1 (pid " in text
    assert "failed in `start`: env 4 (seed 5) raised in its constructor: OSError: no licence left" in text


def test_a_constructor_that_always_raises_starts_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("paceline.train.workers.ProcessRuntime", lambda *a, **k: started.append(a))
    text = failure(EnvError, config(env_kwargs={"mode": "raise_init"}))
    assert "raised in its constructor: RuntimeError: fault in the constructor, as asked" in text
    assert not started


def test_an_exception_that_does_not_pickle_arrives_as_text() -> None:
    text = failure(WorkerError, config(env_kwargs={"mode": "raise_odd", "env_index": 0, "run_seed": 5}))
    assert "OddError: fault in step, as asked (code 42)" in text
    assert "PicklingError" not in text


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        ("exit", WorkerDied, "it ended with exit code 7"),
        ("segfault", WorkerDied, "killed by SIGSEGV. A crash in native code"),
        ("sys_exit", WorkerError, "SystemExit: 3"),
        ("wrong_shape", WorkerError, "env 0 (seed 5, episode 0): observation 'obs' must be float32 of shape (4,)"),
        ("wrong_dtype", WorkerError, "got complex64"),
    ],
)
def test_a_worker_brought_down_by_its_env(mode: str, kind: type[PacelineError], said: str) -> None:
    text = failure(kind, config(env_kwargs={"mode": mode, "env_index": 0, "run_seed": 5}, max_restarts=0))
    assert said in text
    assert "worker 0 (pid " in text
    assert "in `collect`" in text
    if mode == "segfault":
        assert "in `collect`, at env 0:" in text
        assert "Fatal Python error: Segmentation fault" in text, "the error and the log contain the stack"
        assert 'fault.py", line' in text


@pytest.mark.parametrize("mode", ["hang", "hang_gil"])
def test_a_worker_that_hangs_is_called_hung_and_does_not_outlive_the_run(mode: str) -> None:
    kwargs = {"mode": mode, "env_index": 7, "run_seed": 5, "at_step": 4}
    it = config(env_kwargs=kwargs, env_timeout_s=1.0, max_restarts=0)
    with Run(it) as run:
        pids = run.training.runtime.pids()
        with pytest.raises(WorkerHung, match=r"worker 1 .* no sign of life in `collect`, at env 7 for") as caught:
            run.go()
        assert "fault.py" in str(caught.value), "the stack, even if the GIL is held"
        assert "which is the limit" in str(caught.value)
        began = perf_counter()
    assert perf_counter() - began < 5.0
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_a_slow_first_reset_is_not_a_hang() -> None:
    kwargs = {"mode": "slow_reset", "env_index": 3, "run_seed": 5, "hang_s": 1.5}
    train(config(env_kwargs=kwargs, env_timeout_s=0.75, total_timesteps=128))


def local_class() -> Callable[[], gym.Env[Any, Any]]:
    class Local(Counter):
        def step(self, action: int) -> Any:
            obs, _, *rest = super().step(action)
            return (obs, 2.5, *rest)

    return Local


def closure() -> Callable[[], gym.Env[Any, Any]]:
    table = {"length": 4}
    return lambda: Counter(**table)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", [closure(), local_class()], ids=["closure", "local class"])
def test_lambdas_closures_and_local_classes_work(source: Any) -> None:
    train(config(source, total_timesteps=128))


def test_an_env_function_that_cannot_travel_is_named_before_any_worker_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("paceline.runtime.process.WorkerHandle", lambda *a, **k: started.append(a))
    with socket.socket() as connection:

        def make() -> gym.Env[Any, Any]:
            assert connection.fileno() >= 0
            return Counter()

        text = failure(ConfigError, config(make))
    assert "env.source captured 'connection' (socket): cannot be sent to workers" in text
    assert "--num-workers 0" in text
    assert not started


def test_an_agent_survives_a_failed_learn(tmp_path: Path) -> None:
    """A failed `learn` ends the workers and keeps the weights, and `learn` may be called again."""
    kwargs = {"mode": "raise", "env_index": 2, "run_seed": 0, "at_episode": 4, "once": str(tmp_path / "happened")}
    agent = PPO(FAULT, env_kwargs=kwargs, num_workers=2, n_envs=8, n_steps=16, batch_size=64, n_eval_episodes=0)
    with agent:
        with pytest.raises(WorkerError):
            agent.learn(4000)
        assert agent.predict(np.zeros(4, np.float32))[0] in (0, 1)
        agent.learn(256)
        assert agent.summary is not None
        assert agent.summary.steps == 256


def test_torch_may_have_been_used_before() -> None:
    """As in a notebook: torch threads are set, and a parallel region has run."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.rand(600, 600) @ torch.rand(600, 600)).sum()
        train(config("CartPole-v1", total_timesteps=128))
        train(config("CartPole-v1", workers=0, total_timesteps=128))
    finally:
        torch.set_num_threads(before)

"""A small config for every training mode, for tests that hold in all modes."""

from __future__ import annotations

from typing import Any

from paceline.config.train_config import TrainConfig

FAULT = "paceline.envs.fault:FaultEnv"
SEED = 5

MODES: dict[str, dict[str, Any]] = {
    "sequential": {"num_workers": 0},
    "parallel": {},
    "threads": {"env_threads": 4},
    "own pace": {"env_threads": "auto"},
    "pipeline": {"pipeline": True},
    "impala": {"algo": "impala"},
    "a3c": {"algo": "a3c"},
    "dqn": {"algo": "dqn"},
    "dqn-async": {"algo": "dqn", "schedule": "async", "samples_per_insert": 4.0},
}
EXACT = ("parallel", "threads", "own pace", "pipeline", "dqn")
"""Modes in which the loss of a worker does not change the weights."""
ASYNC = ("impala", "a3c", "dqn-async")


def config(mode: str, env: Any = FAULT, *, env_kwargs: dict[str, Any] | None = None, **more: Any) -> TrainConfig:
    """Return the config of a mode: 8 envs on two workers."""
    if env == FAULT:
        waits = {"wait_ms": 2.0} if mode == "own pace" else {}
        env_kwargs = {"run_seed": SEED, **waits, **(env_kwargs or {})}
    settings: dict[str, Any] = {
        "env": env,
        "env_kwargs": env_kwargs or {},
        "n_envs": 8,
        "num_workers": 2,
        "env_threads": 1,
        "total_timesteps": 1600,
        "n_eval_episodes": 0,
        "quiet": True,
        "seed": SEED,
        **MODES[mode],
    }
    if settings.get("algo") == "dqn":
        settings |= {"learning_starts": 200, "batch_size": 32, "buffer_size": 4000, "n_steps": 16}
    else:
        settings |= {"n_steps": 16}
    return TrainConfig.from_flat(**{**settings, **more})

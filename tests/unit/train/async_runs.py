"""Small runs of the asynchronous algorithms, for the tests of several modules."""

from __future__ import annotations

from typing import Any

from paceline.config.train_config import TrainConfig

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

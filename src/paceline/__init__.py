"""Reinforcement learning on every core: parallel training that is never slower than sequential."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.config.train_config import TrainConfig
    from paceline.envs.shaping import RewardShaper, Transition
    from paceline.spec import Extra
    from paceline.train.agents import A3C, APPO, DQN, IMPALA, PPO
    from paceline.vector.env import ParallelVectorEnv
    from paceline.vector.make import make_vec

__all__ = [
    "A3C",
    "APPO",
    "DQN",
    "IMPALA",
    "PPO",
    "Extra",
    "PacelineError",
    "ParallelVectorEnv",
    "RewardShaper",
    "TrainConfig",
    "Transition",
    "make_vec",
]

_HOMES = {
    "A3C": "paceline.train.agents",
    "APPO": "paceline.train.agents",
    "DQN": "paceline.train.agents",
    "Extra": "paceline.spec",
    "IMPALA": "paceline.train.agents",
    "PPO": "paceline.train.agents",
    "ParallelVectorEnv": "paceline.vector.env",
    "RewardShaper": "paceline.envs.shaping",
    "TrainConfig": "paceline.config.train_config",
    "Transition": "paceline.envs.shaping",
    "make_vec": "paceline.vector.make",
}


def __getattr__(name: str) -> Any:
    """Load public names when they are first asked for, so that `paceline --help` need not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}. It has {', '.join(__all__)}.")
    return getattr(importlib.import_module(_HOMES[name]), name)


if "gymnasium" in sys.modules:
    # So that `gymnasium.make` knows our envs. Not loaded for the purpose: `paceline --help` need not wait for it.
    importlib.import_module("paceline.envs")

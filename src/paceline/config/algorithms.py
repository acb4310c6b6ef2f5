"""The table of algorithms. To add one, add a line: docs/how-to/add-an-algorithm.md."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.config.a3c_settings import A3CConfig
from paceline.config.algorithm_settings import AlgorithmSettings
from paceline.config.dqn_settings import DQNConfig
from paceline.config.impala_settings import APPOConfig, ImpalaConfig
from paceline.config.ppo_settings import PPOConfig


@dataclass(frozen=True, slots=True)
class Entry:
    """One algorithm."""

    settings: type[AlgorithmSettings]
    """A frozen dataclass: its fields are the flags, their docstrings the help texts."""
    algorithm: str
    """`module:NAME` of its `paceline.train.plan.Algorithm`, imported when a training is built: that module may import
    torch."""


ALGORITHMS: dict[str, Entry] = {
    "ppo": Entry(PPOConfig, "paceline.train.algorithms.ppo:PPO"),
    "impala": Entry(ImpalaConfig, "paceline.train.algorithms.impala:IMPALA"),
    "appo": Entry(APPOConfig, "paceline.train.algorithms.impala:APPO"),
    "a3c": Entry(A3CConfig, "paceline.train.algorithms.a3c:A3C"),
    "dqn": Entry(DQNConfig, "paceline.train.algorithms.dqn:DQN"),
}
"""By name on the command line."""

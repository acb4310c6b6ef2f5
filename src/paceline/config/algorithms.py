"""The table of algorithms. To add one, add a line: docs/how-to/add-an-algorithm.md."""

from __future__ import annotations

import difflib
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


def nearest_algorithm(name: str) -> str:
    """The end of an error text about an unknown algorithm: the intended one if it is obvious, else all of them."""
    # A cutoff above that of `errors.nearest`: names are so short that sac would suggest a3c.
    close = difflib.get_close_matches(name, ALGORITHMS, n=1, cutoff=0.7)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(ALGORITHMS)}."

"""The learning targets: a config of `configs/`, and the mean return that it must reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.config.train_config import TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A mean return over 100 training episodes, to be reached within the config's own budget of steps."""

    config: TrainConfig
    mean_return: float


def target(name: str, mean_return: float) -> Target:
    """The target of the config file with this name, without evaluations."""
    return Target(
        config=TrainConfig.from_yaml(CONFIGS / f"{name}.yaml", quiet=True, n_eval_episodes=0), mean_return=mean_return
    )


LEARNING = {
    "cartpole": target("cartpole", 475.0),
    "cartpole_impala": target("cartpole_impala", 475.0),
    "cartpole_appo": target("cartpole_appo", 475.0),
    "cartpole_a3c": target("cartpole_a3c", 475.0),
    "cartpole_dqn": target("cartpole_dqn", 475.0),
    "pendulum": target("pendulum", -250.0),
}
"""The targets, by name of the config file."""

"""What must be learned, and with which settings: those of `configs/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.train.config import TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A mean return over 100 episodes, to be reached within the config's own budget of steps."""

    config: TrainConfig
    mean_return: float


LEARNING = {
    "CartPole-v1": Target(
        config=TrainConfig.from_yaml(CONFIGS / "cartpole.yaml", quiet=True, n_eval_episodes=0), mean_return=475.0
    ),
    "Pendulum-v1": Target(
        config=TrainConfig.from_yaml(CONFIGS / "pendulum.yaml", quiet=True, n_eval_episodes=0), mean_return=-250.0
    ),
}
"""The targets, by env."""

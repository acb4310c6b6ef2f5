"""An env, a wrapper and a network of users' own, which stored configs and checkpoints name. Do not rename them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

Info = dict[str, Any]


class Dials(gym.Env[Any, Any]):
    """MultiDiscrete actions: set each of three dials to the position that the observation shows."""

    SIZES = (2, 3, 4)

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = spaces.MultiDiscrete(list(self.SIZES))
        self._goal, self._steps = np.zeros(3, np.int64), 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float32], Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        reward = float((action == self._goal).mean())
        self._steps += 1
        return self._look(), reward, self.np_random.random() < 0.05, self._steps >= 9, {}

    def _look(self) -> NDArray[np.float32]:
        self._goal = self.np_random.integers(self.SIZES)
        return (self._goal / self.SIZES).astype(np.float32)


class Halved(gym.RewardWrapper[Any, Any]):
    """Pays half of each reward."""

    def reward(self, reward: Any) -> float:
        return float(reward) / 2


class OwnNet(nn.Module):
    """A user's own policy: LayerNorm and SiLU, so that its gradient goes through autograd."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete, param_size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation_space.shape[0], 16), nn.LayerNorm(16), nn.SiLU())
        self.policy, self.value = nn.Linear(16, param_size), nn.Linear(16, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden).squeeze(-1)

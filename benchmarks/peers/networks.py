"""The network that all contestants train, for libraries that do not build it themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn


def layer(module: Any, gain: float = 2**0.5) -> Any:
    """Initialise a layer with orthogonal weights and zero bias."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class ActorCritic(nn.Module):
    """Two towers for vectors; one convolutional trunk with two heads for images."""

    def __init__(self, obs_shape: tuple[int, ...], n_actions: int, *, image: bool) -> None:
        super().__init__()
        self.image = image
        if image:
            self.trunk: nn.Module = nn.Sequential(
                layer(nn.Conv2d(obs_shape[0], 32, 8, 4)), nn.ReLU(),
                layer(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(),
                layer(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(),
                layer(nn.Linear(64 * 7 * 7, 512)), nn.ReLU(),
            )  # fmt: skip
            self.actor, self.critic = layer(nn.Linear(512, n_actions), 0.01), layer(nn.Linear(512, 1), 1.0)
            return
        size = int(np.prod(obs_shape))
        self.trunk = nn.Identity()
        self.actor = nn.Sequential(
            layer(nn.Linear(size, 64)),
            nn.Tanh(),
            layer(nn.Linear(64, 64)),
            nn.Tanh(),
            layer(nn.Linear(64, n_actions), 0.01),
        )
        self.critic = nn.Sequential(
            layer(nn.Linear(size, 64)), nn.Tanh(), layer(nn.Linear(64, 64)), nn.Tanh(), layer(nn.Linear(64, 1), 1.0)
        )

    def value(self, obs: Tensor) -> Tensor:
        """V(obs), [N]."""
        value: Tensor = self.critic(self.features(obs)).squeeze(-1)
        return value

    def features(self, obs: Tensor) -> Tensor:
        """Input of actor and critic."""
        features: Tensor = self.trunk(obs / 255.0 if self.image else obs)
        return features

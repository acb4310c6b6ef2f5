"""An env with observations of the size of four stacked Atari frames and steps that cost almost nothing."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Frames(gym.Env[NDArray[np.uint8], np.int64]):
    """Shows noise images in episodes of 100 steps; action 0 is rewarded."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = spaces.Discrete(4)
        self._images = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._elapsed = 0
        return self._images[0], {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Return the next image."""
        self._elapsed += 1
        return self._images[self._elapsed % 8], float(action == 0), self._elapsed >= 100, False, {}

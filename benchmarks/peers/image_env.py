"""An env with 64x64x3 images and almost free steps, which measures the cost of moving observations.

Needs gymnasium 0.29 or later and numpy, and none of the libraries that are compared.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Image = NDArray[np.uint8]
FRAMES = 16


class ImageEnv(gym.Env[Image, int]):
    """Shows one of a few images after another, in episodes of fixed length.

    Args:
        episode_length: Steps of an episode.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own spelling)

    def __init__(self, *, episode_length: int = 100) -> None:
        self.observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = spaces.Discrete(4)  # type: ignore[assignment]
        self.render_mode: str | None = None
        self._frames = np.random.default_rng(0).integers(0, 256, (FRAMES, 64, 64, 3), np.uint8)
        self._length, self._elapsed = episode_length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Image, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._elapsed = 0
        return self._frames[0], {}

    def step(self, action: int) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        """Return the next image."""
        self._elapsed += 1
        return self._frames[self._elapsed % FRAMES], float(action == 0), False, self._elapsed >= self._length, {}

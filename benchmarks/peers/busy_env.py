"""An env whose steps burn a known CPU time or sleep, the same code for every library.

Needs gymnasium 0.29 or later and numpy, and none of the libraries that are compared.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Observation = NDArray[np.float32]


class BusyEnv(gym.Env[Observation, int]):
    """Episodes of fixed length; the action that matches the sign of the first number is rewarded.

    Args:
        cpu_ms: CPU time of a step, by the clock of the thread: by the wall clock, eight processes on two cores would
            all finish in time.
        sleep_ms: Time that a step sleeps, like an env that waits for an external simulator.
        episode_length: Steps of an episode.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own spelling)

    def __init__(self, *, cpu_ms: float = 1.0, sleep_ms: float = 0.0, episode_length: int = 100) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(2)  # type: ignore[assignment]
        self.render_mode: str | None = None
        self._cpu_s, self._sleep_s = cpu_ms / 1e3, sleep_ms / 1e3
        self._length, self._elapsed = episode_length, 0
        self._obs = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode, without delay."""
        super().reset(seed=seed, options=options)
        self._elapsed = 0
        self._obs = self._look()
        return self._obs, {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Burn and sleep as configured; reward the action."""
        if self._cpu_s:
            end = time.thread_time() + self._cpu_s
            while time.thread_time() < end:
                pass
        if self._sleep_s:
            time.sleep(self._sleep_s)
        reward = float(int(action) == int(self._obs[0] > 0))
        self._elapsed += 1
        self._obs = self._look()
        return self._obs, reward, False, self._elapsed >= self._length, {}

    def _look(self) -> Observation:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)

"""`paceline/Busy-v0`: an env whose steps take a configured CPU and sleep time, for measuring how training scales."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError

SLOW_FACTOR = 20
"""Factor of the duration of steps that `jitter` selects."""
SLOW_ENV_FACTOR = 10
"""Factor of the duration of all steps of `slow_env`."""


class Busy(gym.Env[NDArray[np.float32], np.int64]):
    """Uses CPU time, sleeps, and returns reward 1 for the action that matches the sign of `obs[0]`.

    It measures the CPU time of the calling thread. With a wall-clock deadline, eight workers on two cores would step
    eight envs in the time of one and show a speed-up that no real env has.

    Args:
        cpu_ms: CPU milliseconds per step.
        sleep_ms: Milliseconds that a step then sleeps, as if it waited for a device or a network.
        jitter: Probability that a step takes 20 times as long.
        slow_env: Index of an env of the run whose steps all take 10 times as long; None for no such env. The env
            recognises itself by the seed of its first episode.
        run_seed: The run's seed, needed with `slow_env`.
        obs_size: Length of the observation.
        episode_length: Steps until the episode is truncated.
        render_mode: Required by Gymnasium; the env renders nothing.
    """

    def __init__(
        self,
        *,
        cpu_ms: float = 1.0,
        sleep_ms: float = 0.0,
        jitter: float = 0.0,
        slow_env: int | None = None,
        run_seed: int = 0,
        obs_size: int = 4,
        episode_length: int = 100,
        render_mode: str | None = None,
    ) -> None:
        if cpu_ms < 0 or sleep_ms < 0:
            raise ConfigError(f"Busy: times must not be negative (cpu_ms={cpu_ms}, sleep_ms={sleep_ms}).")
        if not 0 <= jitter <= 1:
            raise ConfigError(f"Busy: jitter is a probability, between 0 and 1 (jitter={jitter}).")
        if obs_size < 1 or episode_length < 1:
            raise ConfigError(f"Busy: sizes must be at least 1 (obs_size={obs_size}, episode_length={episode_length}).")
        self.observation_space = spaces.Box(-1.0, 1.0, (obs_size,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.render_mode = render_mode
        self._cpu_s, self._sleep_s, self._jitter = cpu_ms / 1e3, sleep_ms / 1e3, jitter
        self._slow_seed = None if slow_env is None else episode_seed(run_seed, slow_env, 0)
        self._factor = 1
        self._length, self._elapsed = episode_length, 0
        self._obs = np.zeros(obs_size, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; takes no time."""
        super().reset(seed=seed, options=options)
        if seed is not None and seed == self._slow_seed:
            self._factor = SLOW_ENV_FACTOR  # for all later episodes, too
        self._elapsed = 0
        self._obs = self._look()
        return self._obs, {}

    def step(self, action: int | np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Use CPU time and sleep as configured."""
        factor = self._factor
        if self._jitter and self.np_random.random() < self._jitter:
            factor *= SLOW_FACTOR
        burn(self._cpu_s * factor)
        if self._sleep_s:
            time.sleep(self._sleep_s * factor)
        reward = float(int(action) == int(self._obs[0] > 0))
        self._elapsed += 1
        self._obs = self._look()
        return self._obs, reward, False, self._elapsed >= self._length, {}

    def _look(self) -> NDArray[np.float32]:
        return self.np_random.uniform(-1.0, 1.0, self._obs.shape).astype(np.float32)


def burn(cpu_s: float) -> None:
    """Keep the calling thread busy until it has used `cpu_s` seconds of CPU time."""
    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass

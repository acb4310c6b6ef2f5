"""A small simulator with a true state that observations do not show, as single and vector env, and shapers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from paceline.envs.extras import Extra
from paceline.envs.shaping import Transition

EXTRAS = {
    "true_state": Extra(shape=(2,), dtype="int16", read="true_state"),
    "seen": Extra(dtype="float32"),
    "rarely": Extra(dtype="int64", read="age", every=3),
    "at_the_end": Extra(dtype="int64", read="age", every="episode"),
}


class Simulator(gym.Env[Any, Any]):
    """A random walk. Position and age are the true state; the observation is only the sign of the position."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(3)
    extras = EXTRAS

    def __init__(self, length: int = 7) -> None:
        self._length = length
        self._place = self._age = 0
        self._truth = np.zeros(2, np.int16)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._place, self._age = int(self.np_random.integers(-5, 6)), 0
        self._truth[:] = self._place, self._age
        return self._obs(), {"seen": float(self._place)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place += int(action) - 1 + int(self.np_random.integers(-1, 2))
        self._age += 1
        reward = -abs(self._place) / 8
        return self._obs(), reward, self._place == 9, self._age >= self._length, {"seen": float(self._place)}

    def true_state(self) -> NDArray[np.int16]:
        self._truth[:] = self._place, self._age
        return self._truth  # always the same array object, as a simulator might do

    def age(self) -> int:
        return self._age

    def _obs(self) -> NDArray[np.float32]:
        return np.array([np.sign(self._place)], np.float32)


class VectorSimulator(VectorEnv[Any, Any, Any]):
    """n walks as a vector env, with all autoreset modes."""

    extras = EXTRAS

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP, length: int = 7) -> None:
        self.num_envs, self._mode = num_envs, autoreset_mode
        self._envs = [Simulator(length + i % 2) for i in range(num_envs)]
        self.metadata = {"autoreset_mode": autoreset_mode}
        self.single_observation_space, self.single_action_space = Simulator.observation_space, Simulator.action_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)
        self._over = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        for i in np.flatnonzero(mask).tolist():
            self._envs[i].reset(seed=None if seed is None else seed + i)
        self._over[mask] = False
        return self._obs(), self._infos()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        reward, terminated, truncated = np.zeros(self.num_envs), *np.zeros((2, self.num_envs), np.bool_)
        for i, env in enumerate(self._envs):
            if self._over[i] and self._mode is AutoresetMode.NEXT_STEP:
                env.reset()
                self._over[i] = False
            else:
                _, reward[i], terminated[i], truncated[i], _ = env.step(actions[i])
                self._over[i] = terminated[i] or truncated[i]
        infos: dict[str, Any] = {}
        if self._over.any() and self._mode is AutoresetMode.SAME_STEP:
            infos["final_obs"], infos["_final_obs"] = self._obs(), self._over.copy()
            final = {"true_state": self.true_state(), "rarely": self.age(), "at_the_end": self.age(), **self._infos()}
            infos["final_info"] = final
            for i in np.flatnonzero(self._over).tolist():
                self._envs[i].reset()
            self._over[:] = False
        return self._obs(), reward, terminated, truncated, {**infos, **self._infos()}

    def true_state(self) -> NDArray[np.int16]:
        return np.stack([env.true_state() for env in self._envs])

    def age(self) -> NDArray[np.int64]:
        return np.array([env.age() for env in self._envs])

    def _obs(self) -> NDArray[np.float32]:
        return np.stack([env._obs() for env in self._envs])

    def _infos(self) -> dict[str, Any]:
        return {"seen": np.array([env._place for env in self._envs], np.float64)}


class Travelled:
    """Rewards the distance covered in the true state, more so late in an episode, and counts it."""

    parts = ("distance", "patience")
    measures = ("travelled",)

    def __init__(self, n: int, weight: float = 1.0) -> None:
        self._sum, self._weight = np.zeros(n, np.float32), np.float32(weight)

    def begin(self, envs: NDArray[np.int64], extras: Mapping[str, NDArray[Any]]) -> None:
        self._sum[envs] = 0.0

    def __call__(self, step: Transition) -> Mapping[str, NDArray[np.float32]]:
        moved = np.abs(step.extras_after["true_state"][:, 0] - step.extras["true_state"][:, 0]).astype(np.float32)
        self._sum += np.where(step.valid, moved, 0)
        return {"distance": self._weight * moved, "patience": self._sum / 10}

    def measure(self) -> Mapping[str, NDArray[np.float32]]:
        return {"travelled": self._sum}

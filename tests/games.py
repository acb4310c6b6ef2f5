"""Small games with known answers, importable by worker processes as `tests.games:Name`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Info = dict[str, Any]


class Counter(gym.Env[Any, Any]):
    """Observes (tag of its seed, resets so far, steps so far); the reward encodes the step and the action.

    Args:
        length: Steps of an episode; 0 never ends one.
        terminates: Whether episodes terminate; otherwise they are truncated.
        reuse: Returns the same array each time, overwritten in place.
    """

    def __init__(self, length: int = 5, terminates: bool = False, reuse: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._length, self._terminates, self._reuse = length, terminates, reuse
        self._array = np.zeros(3, np.float32)
        self._tag, self._resets, self._steps = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float32], Info]:
        super().reset(seed=seed)
        self._tag = (seed or 0) % 997
        self._resets += 1
        self._steps = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        reward = 10.0 * self._steps + float(action)
        self._steps += 1
        over = self._steps == self._length
        return self._look(), reward, over and self._terminates, over and not self._terminates, {}

    def _look(self) -> NDArray[np.float32]:
        seen = self._array if self._reuse else np.zeros(3, np.float32)
        seen[:] = self._tag / 997, self._resets, self._steps
        return seen


class Bandit(gym.Env[Any, Any]):
    """A contextual bandit: the observation shows which arm pays 1. One step per episode; the best mean return is 1."""

    def __init__(self, arms: int = 3) -> None:
        self.observation_space = spaces.Discrete(arms)
        self.action_space = spaces.Discrete(arms)
        self._good = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[int, Info]:
        super().reset(seed=seed)
        self._good = int(self.np_random.integers(self.action_space.n))  # type: ignore[attr-defined]
        return self._good, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, Info]:
        return self._good, float(action == self._good), True, False, {}


class Corridor(gym.Env[Any, Any]):
    """A corridor with its exit (reward 1) five steps to the right. A step costs 0.1. Truncated after 30 steps.

    The best return is 0.5.
    """

    BEST = 0.5

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (6,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._at, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float32], Info]:
        super().reset(seed=seed)
        self._at, self._steps = 0, 0
        return self._look(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        self._at = max(0, self._at + (1 if action == 1 else -1))
        self._steps += 1
        out = self._at == 5
        return self._look(), (1.0 if out else 0.0) - 0.1, out, self._steps >= 30 and not out, {}

    def _look(self) -> NDArray[np.float32]:
        seen = np.zeros(6, np.float32)
        seen[self._at] = 1.0
        return seen


class Coin(gym.Env[Any, Any]):
    """Ten coin tosses per episode with a reward of 0 or 1 each, independent of actions: the mean return is 5."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float32], Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        self._steps += 1
        return self._look(), float(self.np_random.random() < 0.5), False, self._steps == 10, {}

    def _look(self) -> NDArray[np.float32]:
        return self.np_random.random(2).astype(np.float32)


class Drift(gym.Env[Any, Any]):
    """Box actions, badly scaled float64 observations and rewards, truncation and termination at random times."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._at = np.zeros(3)
        self._left = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float64], Info]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(50.0, 10.0, 3)
        self._left = int(self.np_random.integers(3, 25))
        return self._at.copy(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float64], float, bool, bool, Info]:
        self._at[:2] += 3.0 * action.astype(np.float64)
        self._at[2] += self.np_random.normal()
        self._left -= 1
        fell = bool(self.np_random.random() < 0.02)
        return self._at.copy(), -float(np.abs(self._at[:2]).sum()), fell, self._left <= 0, {}


class Dots(gym.Env[Any, Any]):
    """A bright square at one of two places in a 36x36 image; the reward is 1 for the right place."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
        self.action_space = spaces.Discrete(2)
        self._side, self._steps = 0, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.uint8], Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, Info]:
        reward = float(action == self._side)
        self._steps += 1
        return self._look(), reward, False, self._steps >= 7, {}

    def _look(self) -> NDArray[np.uint8]:
        self._side = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 60, (36, 36, 1)).astype(np.uint8)
        picture[10:20, 4 + 18 * self._side : 14 + 18 * self._side] = 250
        return picture


class Cards(gym.Env[Any, Any]):
    """Dict observations and an action mask: of five cards, only those that have not been played are legal."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"hand": spaces.MultiBinary(5), "trick": spaces.Box(0.0, 1.0, (2,), np.float32), "turn": spaces.Discrete(6)}
        )
        self.action_space = spaces.Discrete(5)
        self._hand = np.ones(5, np.int8)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[dict[str, Any], Info]:
        super().reset(seed=seed)
        self._hand = np.ones(5, np.int8)
        return self._look()

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, Info]:
        if not self._hand[action]:
            raise ValueError(f"card {action} has been played already")
        self._hand[action] = 0
        obs, info = self._look()
        over = not self._hand.any()
        if over:
            info = {"action_mask": np.ones(5, np.int8)}
        return obs, float(action) * float(obs["trick"][0]), over, False, info

    def _look(self) -> tuple[dict[str, Any], Info]:
        seen = {
            "hand": self._hand.copy(),
            "trick": self.np_random.random(2).astype(np.float32),
            "turn": 5 - int(self._hand.sum()),
        }
        return seen, {"action_mask": self._hand.copy()}


class Constant(gym.Env[Any, Any]):
    """Reward 1 per step and a constant observation; episodes of ten steps are truncated, or terminate."""

    def __init__(self, terminates: bool = False) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._terminates, self._steps = terminates, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[np.float32], Info]:
        super().reset(seed=seed)
        self._steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, Info]:
        self._steps += 1
        over = self._steps == 10
        return np.ones(1, np.float32), 1.0, over and self._terminates, over and not self._terminates, {}


class Stubborn(gym.Env[Any, Any]):
    """Ignores the seed of `reset`, because its generator is created once, so its episodes cannot be replayed."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._rng = np.random.default_rng(5)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin; whatever the seed."""
        self._t = 0
        return self._rng.normal(size=3).astype(np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A random walk of twenty steps."""
        self._t += 1
        return self._rng.normal(size=3).astype(np.float32), float(action), False, self._t >= 20, {}

"""Envs that can be rendered, importable as `tests.screens:Name`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Screen(gym.Env[Any, Any]):
    """Ten steps per episode, rendered as a growing bar; the reward is the action.

    Args:
        render_mode: Renders only for `rgb_array`.
        broken: Whether `render` raises.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (gymnasium's own way)

    def __init__(self, render_mode: str | None = None, broken: bool = False) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.render_mode, self._broken, self._steps = render_mode, broken, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self.np_random.random(2, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, Info]:
        self._steps += 1
        return self.np_random.random(2, np.float32), float(action), self._steps == 10, False, {}

    def render(self) -> Any:
        if self._broken:
            raise RuntimeError("no screen")
        if self.render_mode != "rgb_array":
            return None
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[:, : self._steps] = 255
        return picture


class NeedsPygame(Screen):
    """Fails to render as Gymnasium's envs do without pygame."""

    def render(self) -> Any:
        try:
            raise ModuleNotFoundError("No module named 'pygame'", name="pygame")
        except ImportError as error:
            raise gym.error.DependencyNotInstalled("pygame is not installed") from error


class Unseen(Screen):
    """An env without the argument `render_mode`."""

    def __init__(self) -> None:
        super().__init__()

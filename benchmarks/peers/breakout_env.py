"""Atari Breakout with observations of four stacked 84x84 frames, the same code for every library.

Needs ale-py, opencv, gymnasium 0.29 or later and numpy. Preprocessing is the usual one: an action lasts four frames,
the image is the maximum of the last two in greyscale, rewards are signs, an episode begins with some idle frames.
"""

from __future__ import annotations

from typing import Any

import ale_py
import cv2
import gymnasium as gym
import numpy as np
from ale_py import roms
from gymnasium import spaces
from numpy.typing import NDArray

Observation = NDArray[np.uint8]

SIDE, FRAMES, SKIP = 84, 4, 4
IDLE_FRAMES = 30
LONGEST = 27_000
"""Steps after which an episode is truncated."""


class BreakoutEnv(gym.Env[Observation, int]):
    """Breakout with its minimal set of four actions.

    Args:
        channels_first: Whether frames are the first axis or the last; each library gets the order that it prefers.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (gymnasium's own spelling)

    def __init__(self, *, channels_first: bool = False) -> None:
        shape = (FRAMES, SIDE, SIDE) if channels_first else (SIDE, SIDE, FRAMES)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.render_mode: str | None = None
        self._axis = 0 if channels_first else 2
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.loadROM(roms.get_rom_path("breakout"))
        self._actions = self._ale.getMinimalActionSet()
        self.action_space = spaces.Discrete(len(self._actions))  # type: ignore[assignment]
        height, width = self._ale.getScreenDims()
        self._screens = np.zeros((2, height, width), np.uint8)
        self._obs = np.zeros(shape, np.uint8)
        self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a game after some idle frames, with the ball served."""
        super().reset(seed=seed, options=options)
        self._ale.reset_game()
        for _ in range(int(self.np_random.integers(1, IDLE_FRAMES + 1))):
            self._ale.act(self._actions[0])
        self._ale.act(self._actions[1])  # FIRE
        self._elapsed = 0
        self._screens[0] = 0
        self._ale.getScreenGrayscale(self._screens[1])
        picture = self._picture()
        for _ in range(FRAMES):
            self._push(picture)
        return self._obs.copy(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Repeat the action for four frames."""
        chosen, reward = self._actions[int(action)], 0.0
        for frame in range(SKIP):
            reward += self._ale.act(chosen)
            if frame >= SKIP - 2:
                self._ale.getScreenGrayscale(self._screens[frame - SKIP + 2])
        self._push(self._picture())
        self._elapsed += 1
        terminated = bool(self._ale.game_over())
        return self._obs.copy(), float(np.sign(reward)), terminated, self._elapsed >= LONGEST, {}

    def _picture(self) -> Observation:
        both: Observation = np.maximum(self._screens[0], self._screens[1])
        return np.asarray(cv2.resize(both, (SIDE, SIDE), interpolation=cv2.INTER_AREA), np.uint8)

    def _push(self, picture: Observation) -> None:
        """Drop the oldest frame and append the newest."""
        if self._axis == 0:
            self._obs[:-1] = self._obs[1:]
            self._obs[-1] = picture
        else:
            self._obs[..., :-1] = self._obs[..., 1:]
            self._obs[..., -1] = picture

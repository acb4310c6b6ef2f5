"""Trains with the checkout that is on the path, one window per line on stdin; `two_checkouts.py` starts it.

Public names of the package only, so that the same script runs an old checkout and a new one.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

# As the command line does, before numpy and torch are loaded.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402
from windows import Windows, answers  # noqa: E402


class Frames(gym.Env[Any, Any]):
    """Shows noise the size of four stacked Atari frames; workers import it as `two_checkouts_child:Frames`."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = spaces.Discrete(4)
        self._pictures = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._pictures[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The next picture; an episode has 200 steps."""
        self._steps += 1
        return self._pictures[self._steps % 8], float(action == 0), False, self._steps >= 200, {}


class Turns:
    """A callback that reports a window's steps after an update and waits for the next window."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def on_update(self, moment: Any) -> bool:
        """The first call, after the first iteration, begins the first window: start-up is not in it."""
        return self._windows.go_on(moment.steps)


def main() -> None:
    """Build the agent from the settings in the first argument, and train until stdin is closed."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    stream = answers()
    import paceline  # after stdout belongs to the answers

    kind = {"ppo": paceline.PPO, "dqn": paceline.DQN}[settings.pop("algo")]
    with kind(settings.pop("env"), n_eval_episodes=0, seed=0, **settings) as agent:
        turns = Turns(Windows(stream, library="paceline", source=str(paceline.__file__)))
        agent.learn(total_timesteps=10**9, callbacks=[turns])


if __name__ == "__main__":
    main()

"""An env that fails on demand, to test how a training set-up handles faults: `--env paceline.envs.fault:FaultEnv`."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError, nearest

FaultMode = Literal[
    "none",
    "raise",  # in step
    "raise_reset",
    "raise_init",
    "raise_odd",  # an exception that cannot be pickled and needs two arguments
    "exit",  # the process ends at once, with code 7
    "sys_exit",  # SystemExit, code 3
    "segfault",
    "hang",  # in Python
    "hang_gil",  # in C, without releasing the GIL
    "slow_reset",  # the first reset takes `hang_s`
    "leak",  # 1 MB a step, from `at_step` on
    "nan_obs",
    "nan_reward",
    "wrong_shape",
    "wrong_dtype",
]


class OddError(Exception):
    """An exception that cannot be pickled: it needs two arguments and holds a local function."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(f"{text} (code {code})")
        self.callback = lambda: code


class FaultEnv(gym.Env[NDArray[np.float32], np.int64]):
    """An env with four random numbers as observations, which fails in a chosen way at a chosen step.

    Args:
        mode: Kind of fault.
        at_step: Step of the episode at which it happens, counted from 1.
        at_episode: Episode in which it happens, counted from 0.
        env_index: Env of the run in which it happens; None for all envs. The env recognises itself by its reset seed.
        run_seed: The run's seed, needed with `env_index`.
        once: File to create when the fault happens; if the file exists already, nothing happens. For a fault in one
            process only, or a fault that does not repeat after a restart.
        hang_s: Seconds that the hanging and slow modes take.
        episode_length: Steps until the episode is truncated.
        wait_ms: Milliseconds that every step sleeps, like an env that waits for a simulator.
    """

    def __init__(
        self,
        *,
        mode: FaultMode = "none",
        at_step: int = 1,
        at_episode: int = 0,
        env_index: int | None = None,
        run_seed: int = 0,
        once: str | None = None,
        hang_s: float = 3600.0,
        episode_length: int = 20,
        wait_ms: float = 0.0,
    ) -> None:
        if mode not in get_args(FaultMode):
            raise ConfigError(f"FaultEnv: unknown mode {mode!r}. {nearest(mode, get_args(FaultMode))}")
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._mode, self._at_step, self._at_episode, self._length = mode, at_step, at_episode, episode_length
        self._due_seed = None if env_index is None else episode_seed(run_seed, env_index, at_episode)
        self._once, self._hang_s, self._wait_s = once, hang_s, wait_ms / 1e3
        self._episode, self._elapsed, self._armed = -1, 0, False
        self._hoard: list[bytearray] = []
        if mode == "raise_init" and self._first_time():
            raise RuntimeError("fault in the constructor, as asked")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; may fail, depending on the mode."""
        super().reset(seed=seed, options=options)
        self._episode += 1
        self._elapsed = 0
        due = self._episode == self._at_episode if self._due_seed is None else seed == self._due_seed
        self._armed = due
        if due and self._mode == "raise_reset" and self._first_time():
            raise RuntimeError("fault in reset, as asked")
        if due and self._mode == "slow_reset" and self._first_time():
            time.sleep(self._hang_s)
        return self._look(), {}

    def step(self, action: int | np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Take a step; may fail, depending on the mode."""
        del action  # the reward does not depend on it
        self._elapsed += 1
        if self._wait_s:
            time.sleep(self._wait_s)
        obs: NDArray[Any] = self._look()
        reward, truncated = 1.0, self._elapsed >= self._length
        if self._mode == "leak" and self._elapsed >= self._at_step:
            self._hoard.append(bytearray(os.urandom(1 << 20)))
        if self._armed and self._elapsed == self._at_step and self._first_time():
            match self._mode:
                case "nan_obs":
                    obs[0] = np.nan
                case "nan_reward":
                    reward = float("nan")
                case "wrong_shape":
                    obs = obs[:3]
                case "wrong_dtype":
                    obs = obs.astype(np.complex64)
                case _:
                    self._fail()
        return obs, reward, False, truncated, {}

    def _fail(self) -> None:
        match self._mode:
            case "raise":
                raise RuntimeError("fault in step, as asked")
            case "raise_odd":
                raise OddError("fault in step, as asked", 42)
            case "exit":
                os._exit(7)
            case "sys_exit":
                sys.exit(3)
            case "segfault":
                ctypes.string_at(0)
            case "hang":
                time.sleep(self._hang_s)
            case "hang_gil":
                _hold_the_gil(min(self._hang_s, 3600.0))

    def _look(self) -> NDArray[np.float32]:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)

    def _first_time(self) -> bool:
        """Whether the fault may happen: with a `once` file only in the process that creates the file."""
        if self._once is None:
            return True
        try:
            Path(self._once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _hold_the_gil(seconds: float) -> None:
    """Block in C on a locked mutex. PyDLL, unlike CDLL, calls without releasing the GIL."""
    library = ctypes.PyDLL(None)
    if not hasattr(library, "pthread_mutex_timedlock"):
        library.usleep(int(seconds * 1e6))
        return
    mutex = ctypes.create_string_buffer(64)
    until = time.time() + seconds  # the clock that pthread_mutex_timedlock uses
    deadline = (ctypes.c_long * 2)(int(until), int(until % 1 * 1e9))
    for _ in range(2):  # the second call blocks; unlike a sleep, a signal does not interrupt it
        library.pthread_mutex_timedlock(mutex, deadline)

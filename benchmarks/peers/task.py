"""The task of a script in this folder: env, hyper-parameters, and a gate that decides when the training ends.

    settings (JSON in argv) -> Task -> make_env(), ppo settings -> the library's own training
                                 +---> gate: called by the training at the end of every iteration

Standard library, numpy and gymnasium only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TextIO

import gymnasium as gym

from benchmarks.harness.windows import Windows, reply_stream

EPISODES = 100
"""Number of episodes whose mean return decides whether the task is solved."""


@dataclass(frozen=True, slots=True)
class PPOSettings:
    """Hyper-parameters by stable-baselines3's names."""

    n_steps: int
    batch_size: int
    n_epochs: int
    learning_rate: float
    gamma: float
    gae_lambda: float
    clip_range: float
    ent_coef: float
    vf_coef: float
    max_grad_norm: float
    linear: bool = False
    """Whether learning rate and clip range fall to zero over `total_steps`."""
    total_steps: int = 10**12


@dataclass(frozen=True, slots=True)
class Task:
    """Env, number of envs, hyper-parameters, and when to report to the driver."""

    env: str
    env_kwargs: dict[str, Any]
    n_envs: int
    image: bool
    ppo: PPOSettings
    variant: dict[str, Any]
    """Settings that tell contestants of the same library apart."""
    seed: int
    solve_at: float | None
    """Mean return of the last 100 episodes at which to stop; None trains in windows."""
    config: str | None
    """Path of a config file of the library for this task; replaces `ppo`."""
    curve_steps: int | None = None
    """Train for this many steps and send the learning curve; None sends no curve."""

    def env_maker(self, *, channels_first: bool = False) -> Callable[[], gym.Env[Any, Any]]:
        """A picklable function that makes one env per call."""
        kwargs = {**self.env_kwargs, "channels_first": channels_first} if self.image else self.env_kwargs
        return partial(make_env, self.env, kwargs)

    def gate(self, stream: TextIO, **about: Any) -> Gate:
        """The gate that the training calls at the end of every iteration.

        Args:
            stream: Return value of `windows.reply_stream`.
            **about: Passed on to `windows.Windows`.
        """
        if self.curve_steps is not None:
            return CurveGate(stream, self.curve_steps)
        if self.solve_at is None:
            return WindowGate(Windows(stream, **about))
        return SolveGate(stream, self.solve_at)


class Gate(Protocol):
    """Decides whether to continue the training."""

    def keep_training(self, steps: int, returns: Sequence[float]) -> bool:
        """Call this after each iteration: False ends the training.

        Args:
            steps: Env steps so far.
            returns: Returns of the newest episodes, at least the last 100.
        """


class WindowGate:
    """Trains in windows, without regard to returns."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def keep_training(self, steps: int, returns: Sequence[float]) -> bool:  # noqa: ARG002
        """Blocks between windows."""
        return self._windows.keep_training(steps)


class SolveGate:
    """Trains until the task is solved, and then replies to the driver."""

    def __init__(self, stream: TextIO, target: float) -> None:
        self._stream, self._target = stream, target

    def keep_training(self, steps: int, returns: Sequence[float]) -> bool:
        """Whether the task is still unsolved."""
        last = list(returns)[-EPISODES:]
        if len(last) < EPISODES or sum(last) / EPISODES < self._target:
            return True
        self._stream.write(json.dumps({"solved": True, "steps": steps}) + "\n")
        self._stream.flush()
        return False


class CurveGate:
    """Trains for `steps` steps and replies with the learning curve: the mean return of the last 100 episodes."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream, self._last_step = stream, steps
        self._curve: list[tuple[int, float]] = []

    def keep_training(self, steps: int, returns: Sequence[float]) -> bool:
        """Whether there are steps left."""
        last = list(returns)[-EPISODES:]
        if last:
            self._curve.append((steps, float(sum(last)) / len(last)))  # some libraries return numpy floats
        if steps < self._last_step:
            return True
        self._stream.write(json.dumps({"curve": self._curve}) + "\n")
        self._stream.flush()
        return False


def read_task() -> tuple[Task, TextIO]:
    """Read the task from the first argument and reserve stdout for replies. Call it before anything prints."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    return Task(**{**settings, "ppo": PPOSettings(**settings["ppo"])}), reply_stream()


def make_env(name: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    """Make an env by name: `busy`, `breakout`, or a Gymnasium id (without the slow env checker)."""
    # Imported here, because not every virtual environment has the Atari emulator.
    if name == "busy":
        from benchmarks.peers.busy_env import BusyEnv

        return BusyEnv(**kwargs)
    if name == "breakout":
        from benchmarks.peers.breakout_env import BreakoutEnv

        return BreakoutEnv(**kwargs)
    return gym.make(name, disable_env_checker=True, **kwargs)

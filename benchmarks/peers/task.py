"""What every script in this folder is told and must do, in terms that no library owns.

    settings (JSON in argv) -> Task -> make_env(), ppo settings -> the library's own training
                                 +---> gate: asked by the training at the end of every iteration

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
from windows import Windows, answers

EPISODES = 100
"""Episodes over which a task counts as solved."""


@dataclass(frozen=True, slots=True)
class PPOSettings:
    """Hyper-parameters by stable-baselines3's names, which most readers know."""

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
    """One contest: which env, how many, how to train, and when to report."""

    env: str
    env_kwargs: dict[str, Any]
    n_envs: int
    image: bool
    ppo: PPOSettings
    variant: dict[str, Any]
    """What this contestant does differently from others of the same library."""
    seed: int
    solve_at: float | None
    """Mean return of the last 100 episodes at which to stop; None trains in windows."""
    config: str | None
    """A config file of the library's own, where it has one for the task."""
    curve_steps: int | None = None
    """Steps over which to say how the mean return rose; None says nothing of it."""

    def env_maker(self, *, channels_first: bool = False) -> Callable[[], gym.Env[Any, Any]]:
        """Makes one env per call; can be pickled."""
        kwargs = {**self.env_kwargs, "channels_first": channels_first} if self.image else self.env_kwargs
        return partial(make_env, self.env, kwargs)

    def gate(self, stream: TextIO, **about: Any) -> Gate:
        """What the training asks at the end of every iteration.

        Args:
            stream: What `windows.answers` gave.
            **about: As `windows.Windows` takes it.
        """
        if self.curve_steps is not None:
            return CurveGate(stream, self.curve_steps)
        if self.solve_at is None:
            return WindowGate(Windows(stream, **about))
        return SolveGate(stream, self.solve_at)


class Gate(Protocol):
    """Decides whether training goes on."""

    def go_on(self, steps: int, returns: Sequence[float]) -> bool:
        """Asked after each iteration.

        Args:
            steps: Env steps so far.
            returns: Returns of the newest episodes, at least the last 100.
        """


class WindowGate:
    """Trains in windows, whatever it learns."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def go_on(self, steps: int, returns: Sequence[float]) -> bool:  # noqa: ARG002
        """Blocks between windows."""
        return self._windows.go_on(steps)


class SolveGate:
    """Trains until the task is solved, and says so at once."""

    def __init__(self, stream: TextIO, target: float) -> None:
        self._stream, self._target = stream, target

    def go_on(self, steps: int, returns: Sequence[float]) -> bool:
        """Whether the task is still unsolved."""
        last = list(returns)[-EPISODES:]
        if len(last) < EPISODES or sum(last) / EPISODES < self._target:
            return True
        self._stream.write(json.dumps({"solved": True, "steps": steps}) + "\n")
        self._stream.flush()
        return False


class CurveGate:
    """Trains for so many steps, and says at the end what the last 100 episodes gained after each iteration."""

    def __init__(self, stream: TextIO, steps: int) -> None:
        self._stream, self._last_step = stream, steps
        self._curve: list[tuple[int, float]] = []

    def go_on(self, steps: int, returns: Sequence[float]) -> bool:
        """Whether there are steps left."""
        last = list(returns)[-EPISODES:]
        if last:
            self._curve.append((steps, float(sum(last)) / len(last)))  # some count in numpy's floats
        if steps < self._last_step:
            return True
        self._stream.write(json.dumps({"curve": self._curve}) + "\n")
        self._stream.flush()
        return False


def begin() -> tuple[Task, TextIO]:
    """The task, from the first argument, and the stream to the driver. Call it first."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    return Task(**{**settings, "ppo": PPOSettings(**settings["ppo"])}), answers()


def make_env(name: str, kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    """An env by name: the two of this folder, or a Gymnasium id without its slow checker."""
    # Imported where they are made: the emulator is not in every environment.
    if name == "busy":
        from busy_env import BusyEnv

        return BusyEnv(**kwargs)
    if name == "breakout":
        from breakout_env import BreakoutEnv

        return BreakoutEnv(**kwargs)
    return gym.make(name, disable_env_checker=True, **kwargs)

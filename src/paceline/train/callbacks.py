"""Code of the user's that a run calls: to watch it, to log elsewhere, to stop it.

    collect -> on_rollout -> update -> on_update -> [on_evaluation] -> [on_checkpoint]   ... -> on_stop

A callback is any object with some of these methods. Each is handed one `Moment` and may return False to stop the
run: the iteration under way is finished, then the last evaluation and checkpoint follow as always. What it returns
otherwise does not matter. Callbacks run in the driver, in the order given, and training waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from paceline.errors import CallbackError, ConfigError, nearest
from paceline.measure.episodes import WINDOW, Episodes
from paceline.measure.record import EvaluationRow

HOOKS = ("on_rollout", "on_update", "on_evaluation", "on_checkpoint", "on_stop")
"""What a callback may have, in the order in which they are called."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Where the run is. Numbers and copies: it may be kept."""

    steps: int
    """Steps of the run so far."""
    episodes: int
    """Episodes that have ended so far."""
    iteration: int
    """Iterations so far, the one under way included; counts from 1."""
    wall_s: float
    """Seconds of the run so far, earlier sessions of a resumed run included."""
    mean_return: float | None
    """Of the last 100 episodes; None before the first has ended."""
    mean_length: float | None
    """Of the last 100 episodes."""
    reward_parts: Mapping[str, float]
    """Means over the last 100 episodes of what a reward shaper tells, by name; empty without one."""
    finished: Episodes
    """The episodes that ended in the newest rollout: arrays `env`, `returns`, `length`, `step`."""
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """[T+1, B, ...] what was read beside the observations of the newest rollout, by name (on_rollout, on_update)."""
    train: Mapping[str, float] = field(default_factory=dict)
    """What the newest update reports: `loss`, `approx_kl`, ... Empty before the first."""
    evaluation: EvaluationRow | None = None
    """The newest evaluation."""
    checkpoint: Path | None = None
    """The newest checkpoint."""
    stop_reason: str | None = None
    """Why the run stops, once it does."""


class Callback(Protocol):
    """All that a run may call. An object needs only those it has a use for."""

    def on_rollout(self, moment: Moment) -> bool | None:
        """A rollout was collected and is about to be learned from."""

    def on_update(self, moment: Moment) -> bool | None:
        """The weights were updated."""

    def on_evaluation(self, moment: Moment) -> bool | None:
        """An evaluation has ended: `moment.evaluation`."""

    def on_checkpoint(self, moment: Moment) -> bool | None:
        """A checkpoint was written: `moment.checkpoint`."""

    def on_stop(self, moment: Moment) -> bool | None:
        """The run is over, well or badly: `moment.stop_reason`."""


@dataclass(frozen=True, slots=True)
class StopAtScore:
    """Stops the run once it is good enough.

    By `episodes` it asks for the mean return of the last 100 training episodes, once 100 have ended: what the
    field calls solved, exploration included. By `evaluation` it asks for the mean of one evaluation.
    The flag `--stop-at-score` goes by evaluations where `--eval-freq` asks for them, else by episodes.
    """

    score: float
    by: Literal["episodes", "evaluation"] = "episodes"

    def __post_init__(self) -> None:
        """Check the settings."""
        if not math.isfinite(self.score):
            raise ConfigError(
                f"stop_at_score={self.score!r}: must be a finite number. Give the mean return to stop at."
            )
        if self.by not in ("episodes", "evaluation"):
            raise ConfigError(f"by={self.by!r}: must be 'episodes' or 'evaluation'.")

    def on_update(self, moment: Moment) -> bool | None:
        """Look at the last 100 episodes."""
        if self.by != "episodes" or moment.mean_return is None or moment.episodes < WINDOW:
            return None
        return not moment.mean_return >= self.score  # NaN does not reach it

    def on_evaluation(self, moment: Moment) -> bool | None:
        """Look at the evaluation."""
        if self.by != "evaluation" or moment.evaluation is None:
            return None
        return not moment.evaluation.mean_reward >= self.score


@dataclass(frozen=True, slots=True)
class StopAtMeans:
    """Stops the run once what a reward shaper tells of episodes is good enough: the flag `--stop-at`.

    Goes by means over the last 100 episodes, once 100 have ended.
    """

    goals: Mapping[str, float]
    """By name, the least that each mean has to be."""

    def on_update(self, moment: Moment) -> bool | None:
        """Look at the last 100 episodes."""
        if moment.episodes < WINDOW:
            return None
        return not all(moment.reward_parts[name] >= goal for name, goal in self.goals.items())  # NaN reaches no goal


class Callbacks:
    """Some callbacks, called as one.

    Args:
        callbacks: Objects with some of the methods of `Callback`.

    Raises:
        ConfigError: One has none of them, or one that would never be called.
    """

    def __init__(self, callbacks: Iterable[object] = ()) -> None:
        self._hooks: dict[str, list[tuple[str, Callable[[Moment], Any]]]] = {hook: [] for hook in HOOKS}
        for callback in callbacks:
            name = _name(callback)
            for hook in _hooks_of(callback, name):
                self._hooks[hook].append((name, getattr(callback, hook)))

    def __contains__(self, hook: str) -> bool:
        """Whether anybody listens: a moment need not be made otherwise."""
        return bool(self._hooks[hook])

    def __call__(self, hook: str, moment: Moment) -> str | None:
        """Call all; returns the name of the first that wants the run to stop.

        Raises:
            CallbackError: One raised.
        """
        stopped_by = None
        for name, call in self._hooks[hook]:
            try:
                answer = call(moment)
            except Exception as error:
                raise CallbackError(
                    f"callback {name}.{hook}: raised {type(error).__name__}: {error} (at step {moment.steps:,}). "
                    "Mend it, or leave it out."
                ) from error
            if answer is False and stopped_by is None:
                stopped_by = name
        return stopped_by


def _name(callback: object) -> str:
    return callback.__qualname__ if isinstance(callback, type) else type(callback).__qualname__


def _hooks_of(callback: object, name: str) -> list[str]:
    """The methods of this callback that will be called."""
    if isinstance(callback, type):
        raise ConfigError(f"callback {name}: is a class. Give an object of it: {name}().")
    found = [attribute for attribute in dir(callback) if attribute.startswith("on_")]
    for attribute in found:
        if attribute not in HOOKS:
            raise ConfigError(f"callback {name}: {attribute} would never be called. {nearest(attribute, HOOKS)}")
        if not callable(getattr(callback, attribute)):
            raise ConfigError(f"callback {name}: {attribute} must be a method.")
    if not found:
        raise ConfigError(f"callback {name}: has nothing to call. It needs one of {', '.join(HOOKS)}.")
    return found

"""Callbacks: the user's code that a run calls, to observe it or to stop it early.

    collect -> on_rollout -> update -> on_update -> [on_evaluation] -> [on_checkpoint]   ... -> on_stop

A callback is any object with one or more of these methods. Each method gets a `Moment`. If it returns False the run
stops: the current iteration is finished, then the last evaluation and checkpoint follow as usual. Every other return
value is ignored. Callbacks run in the driver, in the given order, and training waits for them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsFloat

from numpy.typing import NDArray

from paceline.errors import CallbackError, ConfigError, nearest
from paceline.measure.episodes import WINDOW, Episodes
from paceline.measure.record import EvaluationRow

if TYPE_CHECKING:
    from paceline.train.agent import Agent

HOOKS = ("on_rollout", "on_update", "on_evaluation", "on_checkpoint", "on_stop")
"""Methods that a callback may have, in the order of their calls."""

SB3_HOOKS = {
    "on_step": "on_rollout is called after each rollout. Steps happen in worker processes: to see each one, use a "
    "reward shaper or a wrapper.",
    "on_rollout_start": "on_update is called between two rollouts.",
    "on_rollout_end": "Write on_rollout.",
    "on_training_start": "Do it before learn().",
    "on_training_end": "Write on_stop.",
}
"""What to write instead of the methods of stable-baselines3's callbacks."""


class OwnNumbers:
    """Numbers that callbacks record, until the next row of the log takes them.

    Args:
        known: Names that the run itself writes.
    """

    def __init__(self, known: Container[str] = ()) -> None:
        self._known = known
        self._waiting: dict[str, float] = {}
        self.last: dict[str, float] = {}
        """Last value of each."""

    def add(self, name: str, value: SupportsFloat) -> None:
        """See `Moment.record`."""
        if not isinstance(name, str) or not re.fullmatch(r'[^\s,"][^,"\r\n]*', name):
            raise ConfigError(
                f"record: a name must be text without commas, quotes and line breaks (got {name!r}). Try 'mine/score'."
            )
        if name in self._known:
            raise ConfigError(f"record: the run itself writes {name!r}. Choose another name, such as 'mine/{name}'.")
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ConfigError(
                f"record: {name!r} must be a number (got a {type(value).__name__}). Convert it."
            ) from None
        self._waiting[name] = self.last[name] = number

    def take(self) -> dict[str, float]:
        """Return the numbers that were recorded since the last call."""
        taken, self._waiting = self._waiting, {}
        return taken


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """State of the run at the time of a call, as numbers and copies, which a callback may keep; and the agent."""

    steps: int
    """Steps of all envs so far."""
    episodes: int
    """Episodes that have ended so far."""
    iteration: int
    """Number of the current iteration, from 1."""
    wall_s: float
    """Seconds of the run so far, including earlier sessions of a resumed run."""
    mean_return: float | None
    """Mean return of the last 100 episodes; None before the first has ended."""
    mean_length: float | None
    """Mean length of the last 100 episodes; None before the first has ended."""
    reward_parts: Mapping[str, float]
    """Means of the reward shaper's parts and measures over the last 100 episodes, by name; empty without a shaper."""
    finished: Episodes
    """Episodes that ended in the newest rollout: arrays `env`, `returns`, `length`, `step`."""
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """[T+1, B, ...] extras of the newest rollout, by name; empty except in `on_rollout` and `on_update`."""
    train: Mapping[str, float] = field(default_factory=dict)
    """Statistics of the newest update: `loss`, `approx_kl`, ... Empty before the first."""
    evaluation: EvaluationRow | None = None
    """Result of the newest evaluation; None before the first."""
    checkpoint: Path | None = None
    """Path of the newest checkpoint; None before the first."""
    stop_reason: str | None = None
    """Why the run stops; None while it continues."""
    run_agent: Agent | None = field(default=None, repr=False)
    """The same as `agent`, but None for a run without an agent."""
    own_numbers: OwnNumbers = field(default_factory=OwnNumbers, repr=False)
    """Where `record` puts its numbers."""

    def record(self, name: str, value: SupportsFloat) -> None:
        """Log a number of your own, in progress.csv, TensorBoard and W&B, and its last value in summary.json.

        It belongs to the current iteration; in `on_checkpoint`, which is called after the row of an iteration was
        written, to the next one. What is recorded when the run ends has no row in progress.csv.

        Args:
            name: Name of the column and the TensorBoard tag, such as `mine/score`.
            value: A number.

        Raises:
            ConfigError: The run itself writes this name, or the value is not a number.
        """
        self.own_numbers.add(name, value)

    @property
    def agent(self) -> Agent:
        """The agent that learns, to predict, evaluate or save with its newest weights, or to read `agent.policy`.

        Raises:
            ConfigError: The run was started by `paceline.train.run.train`, which has no agent.
        """
        if self.run_agent is None:
            raise ConfigError("moment.agent: train(config) runs without an agent. Use PPO(...).learn(callbacks=[...]).")
        return self.run_agent


class Callback(Protocol):
    """The methods that a run may call. A callback needs at least one of them."""

    def on_rollout(self, moment: Moment) -> bool | None:
        """Called when a rollout is complete, before the update."""

    def on_update(self, moment: Moment) -> bool | None:
        """Called after each update of the weights."""

    def on_evaluation(self, moment: Moment) -> bool | None:
        """Called after each evaluation; `moment.evaluation` is its result."""

    def on_checkpoint(self, moment: Moment) -> bool | None:
        """Called after each checkpoint; `moment.checkpoint` is its path."""

    def on_stop(self, moment: Moment) -> bool | None:
        """Called at the end of the run, also if it failed; `moment.stop_reason` says why it ended."""


@dataclass(frozen=True, slots=True)
class StopAtScore:
    """Stop the run when its score reaches a threshold: the flag `--stop-at-score`.

    The flag uses evaluations if `--eval-freq` is set, otherwise training episodes.
    """

    score: float
    """Mean return to stop at."""
    by: Literal["episodes", "evaluation"] = "episodes"
    """`episodes`: mean return of the last 100 training episodes, exploration included, once 100 have ended.
    `evaluation`: mean return of one evaluation."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if not math.isfinite(self.score):
            raise ConfigError(
                f"stop_at_score={self.score!r}: must be a finite number. Give the mean return to stop at."
            )
        if self.by not in ("episodes", "evaluation"):
            raise ConfigError(f"by={self.by!r}: must be 'episodes' or 'evaluation'.")

    @property
    def reason(self) -> str:
        """The stop reason of a run that this stops."""
        mean = f"mean return of {WINDOW} episodes" if self.by == "episodes" else "mean return of an evaluation"
        return f"{mean} >= {self.score:g} reached"

    def on_update(self, moment: Moment) -> bool | None:
        """Compare the mean return of the last 100 episodes."""
        if self.by != "episodes" or moment.mean_return is None or moment.episodes < WINDOW:
            return None
        return not moment.mean_return >= self.score  # written so that NaN does not stop the run

    def on_evaluation(self, moment: Moment) -> bool | None:
        """Compare the mean return of the evaluation."""
        if self.by != "evaluation" or moment.evaluation is None:
            return None
        return not moment.evaluation.mean_reward >= self.score


@dataclass(frozen=True, slots=True)
class StopAtMeans:
    """Stop the run when means of a reward shaper's parts or measures reach their goals: the flag `--stop-at`.

    The means are over the last 100 episodes, once 100 have ended. All goals must be reached.
    """

    goals: Mapping[str, float]
    """The mean to reach, by name of the part or measure."""

    @property
    def reason(self) -> str:
        """The stop reason of a run that this stops."""
        return " and ".join(f"{name} >= {goal:g}" for name, goal in self.goals.items()) + " reached"

    def on_update(self, moment: Moment) -> bool | None:
        """Compare the means of the last 100 episodes."""
        if moment.episodes < WINDOW:
            return None
        return not all(moment.reward_parts[name] >= goal for name, goal in self.goals.items())  # NaN reaches no goal


class Callbacks:
    """Calls the callbacks of a run, hook by hook.

    Args:
        callbacks: Objects with one or more of the methods of `Callback`.
        agent: What they see as `moment.agent`.

    Raises:
        ConfigError: An object has none of these methods, or a method `on_...` that a run never calls.
    """

    def __init__(self, callbacks: Iterable[object] = (), agent: Agent | None = None) -> None:
        self.agent = agent
        self._hooks: dict[str, list[tuple[str, str, Callable[[Moment], Any]]]] = {hook: [] for hook in HOOKS}
        for callback in callbacks:
            name = callback.__qualname__ if isinstance(callback, type) else type(callback).__qualname__
            reason = callback.reason if isinstance(callback, StopAtScore | StopAtMeans) else f"callback {name}"
            for hook in _hooks_of(callback, name):
                self._hooks[hook].append((name, reason, getattr(callback, hook)))

    def __contains__(self, hook: str) -> bool:
        """Whether any callback has this hook. If not, callers need not make a `Moment`."""
        return bool(self._hooks[hook])

    def __call__(self, hook: str, moment: Moment) -> str | None:
        """Call this hook of all callbacks; returns the stop reason of the first that returned False, or None.

        Raises:
            CallbackError: A callback raised an exception.
        """
        stop_reason = None
        for name, reason, call in self._hooks[hook]:
            try:
                answer = call(moment)
            except Exception as error:
                raise CallbackError(
                    f"callback {name}.{hook}: raised {type(error).__name__}: {error} (at step {moment.steps:,}). "
                    "Fix it, or leave it out."
                ) from error
            if answer is False and stop_reason is None:
                stop_reason = reason
        return stop_reason


def _hooks_of(callback: object, name: str) -> list[str]:
    """The hooks that this callback has.

    Raises:
        ConfigError: It has none, or is misspelt.
    """
    if isinstance(callback, type):
        raise ConfigError(f"callback {name}: is a class. Give an instance: {name}().")
    found = [attribute for attribute in dir(callback) if attribute.startswith("on_")]
    for theirs, instead in SB3_HOOKS.items():
        if theirs in found or (not found and f"_{theirs}" in dir(callback)):
            raise ConfigError(f"callback {name}: a run never calls {theirs}. {instead}")
    for attribute in found:
        if attribute not in HOOKS:
            raise ConfigError(f"callback {name}: a run never calls {attribute}. {nearest(attribute, HOOKS)}")
        if not callable(getattr(callback, attribute)):
            raise ConfigError(f"callback {name}: {attribute} must be a method.")
    if not found:
        raise ConfigError(f"callback {name}: has none of the methods {', '.join(HOOKS)}. Give it one.")
    return found

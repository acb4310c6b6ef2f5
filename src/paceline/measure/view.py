"""Derives what the display shows from the newest iterations: rates, phase shares, and the remaining time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.measure.record import EvaluationRow, Goal, Iteration, RunInfo
from paceline.measure.speed import per_second

COLOURS = {
    "env": "cyan",
    "inference": "blue",
    "collect": "cyan",
    "wait": "red",
    "learn": "magenta",
    "sync": "yellow",
    "eval": "green",
    "checkpoint": "green",
    "record": "grey50",
    "other": "grey50",
    "idle": "grey37",
}
"""Colours of the phases, in the order in which they are shown, and of the idle time of a worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """State of a run for the display."""

    info: RunInfo
    goal: Goal
    newest: Iteration | None
    recent: Sequence[Iteration]
    """Iterations of the last seconds, from which rates and shares are computed."""
    wall_s: float
    since_s: float
    """Seconds since the newest iteration."""
    collected: int = 0
    """Steps that workers have collected since the newest iteration."""
    returns: Sequence[float] = ()
    """Mean returns so far, oldest first."""
    last_eval: EvaluationRow | None = None
    best_eval: EvaluationRow | None = None

    @property
    def steps(self) -> int:
        """Steps of the run so far."""
        return self.newest.steps if self.newest else self.info.resumed_steps

    @property
    def episodes(self) -> int:
        """Episodes of the run so far."""
        return self.newest.episodes if self.newest else 0

    @property
    def fps(self) -> float | None:
        """Recent steps per second (`speed`)."""
        seconds = sum(it.counted_s for it in self.recent)
        return sum(it.iteration_steps for it in self.recent) / seconds if seconds > 0 else None

    @property
    def episodes_per_s(self) -> float | None:
        """Recent episodes per second, in the time that steps/s counts."""
        seconds = sum(it.counted_s for it in self.recent)
        return sum(it.iteration_episodes for it in self.recent) / seconds if seconds > 0 else None

    @property
    def statistics(self) -> dict[str, float]:
        """Newest value of each statistic, by tag. An iteration without an update has none of learning."""
        found: dict[str, float] = {}
        for iteration in self.recent:
            found |= iteration.statistics()
        return found

    @property
    def fraction(self) -> float:
        """Fraction of the run that is done, by the budget that is closest to its end."""
        parts = [
            have / goal
            for have, goal in (
                (self.steps, self.goal.steps),
                (self.episodes, self.goal.episodes),
                (self.wall_s, self.goal.seconds),
            )
            if goal
        ]
        return min(1.0, max(parts, default=0.0))

    @property
    def by_episodes(self) -> bool:
        """Whether the budget that ends the run first is the number of episodes."""
        return bool(self.goal.episodes) and self.episodes / (self.goal.episodes or 1) >= self.fraction

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the first budget is spent, at the recent rate; None without a rate."""
        lefts = []
        if self.goal.seconds is not None:
            lefts.append(self.goal.seconds - self.wall_s)
        seconds = sum(it.iteration_s for it in self.recent)  # with evaluations, which the remaining time has too
        for goal, have, recent in (
            (self.goal.steps, self.steps, sum(it.iteration_steps for it in self.recent)),
            (self.goal.episodes, self.episodes, sum(it.iteration_episodes for it in self.recent)),
        ):
            if goal is not None and (rate := per_second(recent, seconds)):
                lefts.append((goal - have) / rate - self.since_s)
        return max(0.0, min(lefts)) if lefts else None

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the recent time by phase, with the remainder as `other`; they add up to one."""
        return phase_shares([it.phases for it in self.recent], sum(it.iteration_s for it in self.recent))

    @property
    def worker_shares(self) -> dict[str, float]:
        """Fraction of the recent time of the average worker by activity; they add up to one. Empty without workers."""
        return activity_shares([it.worker_s for it in self.recent])


def activity_shares(seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the fraction of a worker's time by activity, from its seconds by activity. Empty without any."""
    totals = Counter[str]()
    for one in seconds:
        totals.update(one)
    known = {name: max(0.0, value) for name, value in totals.items()}
    return phase_shares([known], sum(known.values()))


def phase_shares(phases: Sequence[Mapping[str, float]], total_s: float) -> dict[str, float]:
    """Return the fraction of `total_s` by phase, in the order of `COLOURS`, with the remainder as `other`."""
    if total_s <= 0:
        return {}
    seconds: dict[str, float] = dict.fromkeys(COLOURS, 0.0)
    for one in phases:
        for name, value in one.items():
            seconds[name] = seconds.get(name, 0.0) + value
    seconds["other"] += max(0.0, total_s - sum(seconds.values()))
    total_s = sum(seconds.values())  # may exceed the wall time by rounding
    return {name: value / total_s for name, value in seconds.items() if value > 0}

"""Curves of runs over steps or time: returns, speed, their mean over runs, and when a score was first reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.insight.runs.columns import read_columns, training_seconds
from paceline.insight.runs.intervals import t_quantile
from paceline.insight.runs.results import RunResult
from paceline.measure.folder import EPISODES
from paceline.measure.record import EPISODES_HEADER

Array = NDArray[np.float64]

EPISODE_WINDOW = 100
"""Episodes in the running mean of scores and curves."""
FPS_WINDOW = 0.05
"""Fraction of a run over which its speed is averaged for the plot."""
POINTS = 200
"""Largest number of points of a drawn curve."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Points of one run: x is non-decreasing, all values are finite."""

    x: Array  # [N]
    y: Array  # [N]


NO_POINTS = Series(np.empty(0), np.empty(0))


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The mean of runs over their common range of x, with the t-interval of that mean."""

    x: Array  # [N]
    mean: Array  # [N]
    low: Array  # [N]  equal to the mean for a single run
    high: Array  # [N]
    n: int


@dataclass(frozen=True, slots=True)
class Reached:
    """When a score was first reached."""

    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class ReturnCurve:
    """The running mean return of the last 100 episodes, one point per episode from the 100th on."""

    steps: Array  # [N]
    wall_s: Array  # [N]
    mean: Array  # [N]

    @property
    def best(self) -> float | None:
        """The highest mean; None with fewer than 100 finished episodes."""
        return float(self.mean.max()) if len(self.mean) else None

    def reached(self, score: float) -> Reached | None:
        """When the mean first was `score` or more; None if it never was."""
        slack = 1e-9 * max(1.0, abs(score))  # rounding: the mean of 100 times 0.1 is slightly below 0.1
        hits = np.flatnonzero(self.mean >= score - slack)
        return Reached(int(self.steps[hits[0]]), float(self.wall_s[hits[0]])) if len(hits) else None


def read_scores(run: RunResult) -> ReturnCurve:
    """Read the return curve from episodes.csv (a point per episode), or else from progress.csv (a point per update).

    Raises:
        ConfigError: episodes.csv is damaged; file and line are named.
    """
    file = run.path / EPISODES
    if file.exists():
        columns = read_columns(file, EPISODES_HEADER)
        total = np.concatenate(([0.0], np.cumsum(columns["return"])))
        mean = (total[EPISODE_WINDOW:] - total[:-EPISODE_WINDOW]) / EPISODE_WINDOW
        first = EPISODE_WINDOW - 1
        return ReturnCurve(columns["step"][first:], columns["wall_s"][first:], mean)
    columns = run.progress
    if not {"rollout/ep_rew_mean", "time/time_elapsed"} <= set(columns):
        return ReturnCurve(np.empty(0), np.empty(0), np.empty(0))
    full = (columns["episodes"] >= EPISODE_WINDOW) & np.isfinite(columns["rollout/ep_rew_mean"])
    return ReturnCurve(*(columns[name][full] for name in ("steps", "time/time_elapsed", "rollout/ep_rew_mean")))


def column(run: RunResult, x: str, y: str) -> Series:
    """Two columns of progress.csv, restricted to rows in which both have a number."""
    if not {x, y} <= set(run.progress):
        return NO_POINTS
    both = np.isfinite(run.progress[x]) & np.isfinite(run.progress[y])
    return Series(run.progress[x][both], run.progress[y][both])


def returns_over_steps(run: RunResult) -> Series:
    """Mean return of the last 100 episodes by steps of the run."""
    return column(run, "steps", "rollout/ep_rew_mean")


def returns_over_time(run: RunResult) -> Series:
    """Mean return of the last 100 episodes by seconds since the first step."""
    return column(run, "time/time_elapsed", "rollout/ep_rew_mean")


def fps_over_time(run: RunResult) -> Series:
    """Steps per second of training time, averaged over a moving window.

    Steps of the window divided by its seconds. A mean of rates would give fast updates too much weight.
    """
    if "time/time_elapsed" not in run.progress:
        return NO_POINTS
    wall_s = np.nan_to_num(run.progress["time/time_elapsed"])
    sums = [np.concatenate(([0.0], so_far)) for so_far in (run.progress["steps"], training_seconds(run.progress))]
    n = len(wall_s)
    reach = max(1, round(n * FPS_WINDOW / 2))
    begin = np.maximum(0, np.arange(n) - reach)
    end = np.minimum(n, np.arange(n) + reach + 1)
    steps, took = (total[end] - total[begin] for total in sums)
    some = took > 0
    return Series(wall_s[some], steps[some] / took[some])


def average(series: Sequence[Series], *, x: Array | None = None) -> Curve | None:
    """The mean of runs over their common range of x; None if they have none.

    Args:
        series: One per run.
        x: Points at which to interpolate. Default: `POINTS` evenly spaced ones.
    """
    if not series or any(len(one.x) < 2 for one in series):
        return None
    begin, end = max(one.x[0] for one in series), min(one.x[-1] for one in series)
    if begin >= end:
        return None
    if x is None:
        only = series[0].x
        x = only if len(series) == 1 and len(only) <= POINTS else np.linspace(begin, end, POINTS)
    values = np.stack([np.interp(x, one.x, one.y) for one in series])
    mean, n = values.mean(axis=0), len(series)
    half = t_quantile(n - 1) * values.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else np.zeros_like(mean)
    return Curve(x, mean, mean - half, mean + half, n)


def side_by_side(first: Sequence[Series], second: Sequence[Series]) -> tuple[Curve, Curve] | None:
    """The means of two groups of runs at the same points of their common range; None if they have none."""
    if not first or not second or (whole := average([*first, *second])) is None:
        return None
    grid = np.linspace(whole.x[0], whole.x[-1], POINTS)
    a, b = average(first, x=grid), average(second, x=grid)
    return None if a is None or b is None else (a, b)


def same_course(a: RunResult, b: RunResult) -> int | None:
    """Number of steps over which two runs report bit-identical returns and losses; None if they differ anywhere."""
    names = [
        name
        for name in a.progress
        if name in b.progress and (name in ("steps", "episodes") or name.startswith(("rollout/ep_", "train/")))
    ]
    rows = min((len(run.progress.get("steps", ())) for run in (a, b)), default=0)
    if not rows or not any(np.isfinite(a.progress[name][:rows]).any() for name in names if name.startswith("train/")):
        return None
    same = all(np.array_equal(a.progress[name][:rows], b.progress[name][:rows], equal_nan=True) for name in names)
    return int(a.progress["steps"][rows - 1]) if same else None

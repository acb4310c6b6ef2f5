"""Draws learning curves of one or more runs into a PNG, for `paceline plot`. Runs may be unfinished.

To compare the speed of runs, use `compare` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline.insight.runs.curves import (
    EPISODE_WINDOW,
    NO_POINTS,
    POINTS,
    Series,
    column,
    fps_over_time,
    returns_over_steps,
    returns_over_time,
)
from paceline.insight.runs.picture import axis, time_unit
from paceline.insight.runs.plots import FAINT, colour, dash, frame, png, scale
from paceline.insight.runs.results import RunResult
from paceline.measure.statistic import statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGINS, ROW_HEIGHT = 12.0, 1.4, 3.5
"""Size in inches: of the figure, of its margins above and below, and of a row of panels."""
NAME_LENGTH = 48
EVALUATION = "eval/mean_reward"
EXPLAINED, LOSS = "train/explained_variance", "train/loss"
MEAN = f"mean of the last {EPISODE_WINDOW} training episodes"
NOTES = {
    EXPLAINED: "of the returns by the value function; 1: perfect, 0: no better than their mean",
    LOSS: "mean over the updates of an iteration",
    "train/mean_q": "mean value of the actions that the updates learned from",
    "train/epsilon": "fraction of actions that are random",
    "train/elo": "against the opponents of training; random has 1000",
}
"""What a panel shows, by tag. Other panels show means of episodes, or win rates."""
NOT_DRAWN = ("train/buffer_size",)


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    note: str
    x_label: str
    get: Callable[[RunResult], Series]
    dots: Callable[[RunResult], Series] | None = None
    x_unit: float = 1.0
    zero: bool = False
    """Whether the axis begins at zero."""


def draw_curves(runs: Sequence[RunResult]) -> bytes:
    """Draw return, speed and the statistics of learning, one line per run; returns the bytes of a PNG file."""
    names, drawn = labels([run.path for run in runs]), panels(runs)
    head, rows = 0.5 + 0.24 * math.ceil(len(runs) / 2), math.ceil(len(drawn) / 2)
    height, title = MARGINS + ROW_HEIGHT * rows + head, _title(runs)

    def draw(figure: Figure) -> None:
        figure.text(0.055, 1 - 0.32 / height, title, fontsize=15, fontweight="bold", va="center")
        for i, name in enumerate(names):
            x, y = 0.055 + 0.47 * (i % 2), 1 - (0.68 + 0.24 * (i // 2)) / height
            unfinished = "" if runs[i].finished else "  (unfinished)"
            figure.text(x, y, "\u2014 " + name + unfinished, fontsize=10.5, color=colour(i), va="center")
        grid = figure.add_gridspec(
            rows, 2, left=0.055, right=0.975, bottom=0.65 / height, top=1 - (head + 0.85) / height, hspace=0.42,
            wspace=0.15,
        )  # fmt: skip
        for i, one in enumerate(drawn):
            _draw(figure.add_subplot(grid[i // 2, i % 2]), one, runs)

    return png(WIDTH, height, title, draw)


def panels(runs: Sequence[RunResult]) -> list[Panel]:
    """Return and speed, with time in the unit that suits the longest run, and the statistics that the runs have."""
    longest_s = max((run.wall_s for run in runs), default=0.0)
    unit_s, unit = time_unit(longest_s)
    dots = "; dots are evaluations" if any(len(evaluations(run).x) for run in runs) else ""
    mean = MEAN + dots
    return [
        Panel("Return over steps", mean, "steps", returns_over_steps, evaluations),
        Panel("Return over wall time", mean, unit, returns_over_time, evaluations_over_time, unit_s),
        Panel("Steps per second", "learning included, evaluation not", unit, fps_over_time, None, unit_s, zero=True),
        *(
            Panel(label[0].upper() + label[1:], _note(tag), "steps", partial(column, x="steps", y=tag))
            for tag, label in _recorded(runs).items()
        ),
    ]


def _recorded(runs: Sequence[RunResult]) -> dict[str, str]:
    """Return the tags of learning and of the task of which a run has numbers, with their labels."""
    tags = dict.fromkeys(tag for run in runs for tag in run.progress if len(column(run, "steps", tag).x))
    found = {tag: one.label for tag, one in statistics(tags).items() if tag not in NOT_DRAWN}
    if EXPLAINED in found:
        found.pop(LOSS, None)  # it says less
    return found or {LOSS: "loss"}


def _note(tag: str) -> str:
    return NOTES.get(tag) or (MEAN if tag.startswith("rollout/") else "recent training games, with exploration")


def evaluations(run: RunResult) -> Series:
    """Evaluations by steps, with the final evaluation, which progress.csv of earlier versions does not have."""
    return _with_last(column(run, "steps", EVALUATION), run.steps, run.final_eval)


def evaluations_over_time(run: RunResult) -> Series:
    """Evaluations by seconds, with the final evaluation."""
    rows = column(run, "steps", EVALUATION)
    if len(rows.x) and rows.x[-1] == run.steps:
        return column(run, "time/time_elapsed", EVALUATION)
    return _with_last(column(run, "time/time_elapsed", EVALUATION), run.wall_s, run.final_eval)


def _with_last(series: Series, x: float, y: float | None) -> Series:
    if y is None or not math.isfinite(y) or (len(series.x) and series.x[-1] >= x):
        return series
    return Series(np.append(series.x, x), np.append(series.y, y))


def labels(paths: Sequence[Path]) -> list[str]:
    """Names of run folders, each with as many parent folders as are needed to make the names unique."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(set(parts)):
            break
    return [name if len(name) <= NAME_LENGTH else "…" + name[1 - NAME_LENGTH :] for name in names] if paths else []


def _title(runs: Sequence[RunResult]) -> str:
    what = sorted({f"{run.algo or '?'} on {run.env or '?'}" for run in runs})
    return ", ".join(what[:3]) + (" and others" if len(what) > 3 else "")


def _draw(axes: Axes, panel: Panel, runs: Sequence[RunResult]) -> None:
    lines = [_thinned(panel.get(run)) for run in runs]
    dots = [panel.dots(run) if panel.dots else NO_POINTS for run in runs]
    values = np.concatenate([each.y for each in [*lines, *dots]])
    right = max((float(each.x[-1]) for each in [*lines, *dots] if len(each.x)), default=1.0) / panel.x_unit
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if panel.zero or 0 < low < 0.5 * high:
        low = 0.0
    frame(axes, panel.title, panel.note, panel.x_label)
    scale(axes, axis(panel.x_label, 0.0, right), axis("", low, high, margin=0.06))
    if not len(values):
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", color=FAINT)
    for i, (line, points) in enumerate(zip(lines, dots, strict=True)):
        width = 3.2 if i == 0 and len(runs) > 1 else 1.7  # wider first line, so that equal curves are both visible
        axes.plot(line.x / panel.x_unit, line.y, color=colour(i), lw=width, ls=dash(i), solid_capstyle="round")
        x = points.x / panel.x_unit
        axes.plot(x, points.y, "o", color=colour(i), ms=5, mec="white", mew=0.8, clip_on=False, zorder=3)


def _thinned(series: Series) -> Series:
    """Average equal pieces of a series that has more points than the plot can resolve."""
    if len(series.x) <= 2 * POINTS:
        return series
    edges = np.linspace(0, len(series.x), POINTS + 1).astype(int)
    counts = np.diff(edges)
    y = np.add.reduceat(series.y, edges[:-1]) / counts
    return Series(series.x[edges[1:] - 1], y)

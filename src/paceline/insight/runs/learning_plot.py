"""Draws learning curves of one or more runs into a PNG, for `paceline plot`. Runs may be unfinished.

To compare the speed of runs, use `compare` instead.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.insight.runs.curves import (
    EPISODE_WINDOW,
    POINTS,
    Series,
    fps_over_time,
    returns_over_steps,
    returns_over_time,
)
from paceline.insight.runs.picture import LIGHT, Axis, axis
from paceline.insight.runs.plots import DPI, FAINT, GRID, STYLE
from paceline.insight.runs.results import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 12.0, 8.4
NAME_LENGTH = 48
EVALUATION = "eval/mean_reward"


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the four panels."""

    title: str
    note: str
    x_label: str
    get: Callable[[RunResult], Series]
    dots: Callable[[RunResult], Series] | None = None
    x_unit: float = 1.0
    zero: bool = False
    """Whether the axis begins at zero."""


def draw_curves(runs: Sequence[RunResult]) -> bytes:
    """Draw return, speed and explained variance with one line per run; returns the bytes of a PNG file."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = labels([run.path for run in runs])
    rows = math.ceil(len(runs) / 2)
    head = 0.5 + 0.24 * rows
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]  # its keys are literals
        height = HEIGHT + head
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        canvas: Any = FigureCanvasAgg(figure)
        figure.text(0.055, 1 - 0.32 / height, _title(runs), fontsize=15, fontweight="bold", va="center")
        for i, name in enumerate(names):
            x, y = 0.055 + 0.47 * (i % 2), 1 - (0.68 + 0.24 * (i // 2)) / height
            unfinished = "" if runs[i].finished else "  (unfinished)"
            figure.text(x, y, "\u2014 " + name + unfinished, fontsize=10.5, color=colour(i), va="center")
        grid = figure.add_gridspec(
            2, 2, left=0.055, right=0.975, bottom=0.07, top=1 - (head + 0.85) / height, hspace=0.42, wspace=0.15
        )
        for place, panel in zip(grid, panels(runs), strict=True):  # type: ignore[call-overload]
            _draw(figure.add_subplot(place), panel, runs)
        out = io.BytesIO()
        canvas.print_png(out, metadata={"Title": _title(runs)})
    return out.getvalue()


def panels(runs: Sequence[RunResult]) -> list[Panel]:
    """The four panels, with time in the unit that suits the longest run."""
    longest_s = max((run.wall_s for run in runs), default=0.0)
    unit_s, unit = (1.0, "seconds") if longest_s < 300 else (60.0, "minutes")
    unit_s, unit = (unit_s, unit) if longest_s < 10_800 else (3600.0, "hours")
    dots = "; dots are evaluations" if any(len(evaluations(run).x) for run in runs) else ""
    mean = f"mean of the last {EPISODE_WINDOW} training episodes{dots}"
    return [
        Panel("Return over steps", mean, "steps", returns_over_steps, evaluations),
        Panel("Return over wall time", mean, unit, returns_over_time, evaluations_over_time, unit_s),
        Panel("Steps per second", "learning included, evaluation not", unit, fps_over_time, None, unit_s, zero=True),
        Panel(
            "Explained variance",
            "of the returns by the value function; 1: perfect, 0: no better than their mean",
            "steps",
            lambda run: column(run, "steps", "train/explained_variance"),
        ),
    ]


def evaluations(run: RunResult) -> Series:
    """Evaluations by steps, with the final evaluation, which progress.csv does not have."""
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


def column(run: RunResult, x: str, y: str) -> Series:
    """Two columns of progress.csv, restricted to rows in which both have a number."""
    if not {x, y} <= set(run.progress):
        return Series(np.empty(0), np.empty(0))
    both = np.isfinite(run.progress[x]) & np.isfinite(run.progress[y])
    return Series(run.progress[x][both], run.progress[y][both])


def labels(paths: Sequence[Path]) -> list[str]:
    """Names of run folders, each with as many parent folders as are needed to make the names unique."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(set(parts)):
            break
    return [name if len(name) <= NAME_LENGTH else "…" + name[1 - NAME_LENGTH :] for name in names] if paths else []


def colour(i: int) -> str:
    """Colour of the i-th run."""
    return LIGHT[i % len(LIGHT)]


def _title(runs: Sequence[RunResult]) -> str:
    what = sorted({f"{run.algo or '?'} on {run.env or '?'}" for run in runs})
    return ", ".join(what[:3]) + (" and others" if len(what) > 3 else "")


def _draw(axes: Axes, panel: Panel, runs: Sequence[RunResult]) -> None:
    lines = [_thinned(panel.get(run)) for run in runs]
    dots = [panel.dots(run) if panel.dots else Series(np.empty(0), np.empty(0)) for run in runs]
    values = np.concatenate([each.y for each in [*lines, *dots]])
    right = max((float(each.x[-1]) for each in [*lines, *dots] if len(each.x)), default=1.0) / panel.x_unit
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if panel.zero or 0 < low < 0.5 * high:
        low = 0.0
    _frame(axes, panel, axis(panel.x_label, 0.0, right), axis("", low, high, margin=0.06))
    if not len(values):
        axes.text(0.5, 0.5, "nothing was recorded", transform=axes.transAxes, ha="center", color=FAINT)
    for i, (line, points) in enumerate(zip(lines, dots, strict=True)):
        style = "-" if i < len(LIGHT) else "--"
        width = 3.2 if i == 0 and len(runs) > 1 else 1.7  # wider first line, so that equal curves are both visible
        axes.plot(line.x / panel.x_unit, line.y, color=colour(i), lw=width, ls=style, solid_capstyle="round")
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


def _frame(axes: Axes, panel: Panel, x: Axis, y: Axis) -> None:
    plain_panel(axes, panel.title, panel.note, x.label)
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    axes.set_xticks([place for place, _ in x.ticks], [text for _, text in x.ticks])
    axes.set_yticks([place for place, _ in y.ticks], [text for _, text in y.ticks])


def plain_panel(axes: Axes, title: str, note: str, x_label: str) -> None:
    """Draw title, note, horizontal grid lines and the label of the x axis; hide the top and right borders."""
    for text, above, size, weight, ink in (
        (title, 25, 12, "bold", STYLE["text.color"]),
        (note, 10, 9, "normal", FAINT),
    ):
        axes.annotate(
            text, (0, 1), xycoords="axes fraction", xytext=(0, above), textcoords="offset points",
            fontsize=size, fontweight=weight, color=str(ink),
        )  # fmt: skip
    for name in ("top", "right"):
        axes.spines[name].set_visible(False)
    axes.tick_params(length=0, pad=5, labelsize=9.5)
    axes.grid(axis="y", color=GRID, lw=0.8)
    axes.set_xlabel(x_label, color=FAINT, fontsize=9.5, labelpad=3)

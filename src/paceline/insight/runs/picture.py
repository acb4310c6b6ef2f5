"""The content of the four panels of a comparison: curves, bars, axes, colours and texts, independent of the output.

`plots` draws the panels into a PNG, `svg` into the HTML page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.insight.runs.compare import Comparison
from paceline.insight.runs.curves import (
    EPISODE_WINDOW,
    FPS_WINDOW,
    Array,
    Curve,
    Series,
    average,
    fps_over_time,
    returns_over_steps,
    returns_over_time,
)
from paceline.insight.runs.intervals import METHOD
from paceline.insight.runs.likeness import same_task
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.sides import Side

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#B0528F", "#B58900", "#2A9CD8", "#5C5C5C")
DARK = ("#58B0EA", "#FF8F4A", "#34C99B", "#E59CC9", "#E9B93C", "#9AD4FF", "#BDBDBD")
"""Colour-blind safe colours of the sides. With more sides than colours, they repeat with dashed lines."""
PHASE_COLOURS = {
    "env": "#66CCEE",
    "inference": "#4477AA",
    "collect": "#5599CC",
    "wait": "#EE6677",
    "learn": "#CCBB44",
    "sync": "#AA3377",
    "eval": "#228833",
    "checkpoint": "#EE8866",
    "record": "#AAAA00",
    "other": "#BBBBBB",
    "idle": "#DDDDDD",
}
DARK_INK = frozenset({"env", "wait", "learn", "checkpoint", "record", "other", "idle"})
"""Phases with a light colour, which have black text."""
WIDTHS = (3.2, 1.6)
"""Line width of the first side and of all others, so that both are visible where curves coincide."""
BAND_ROOM = 0.3
"""Bands may extend the y axis by this fraction of the range of the curves; the rest of a band is clipped."""
NAME_LENGTH = 34


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its label, limits and ticks."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def place(self, value: float | Array) -> Array:
        """Position of a value along the axis, from 0 (low) to 1 (high)."""
        return np.asarray((np.asarray(value) - self.low) / (self.high - self.low))


@dataclass(frozen=True, slots=True)
class Chart:
    """A panel with curves of all sides. `mark` is a y value and its label, drawn as a thin horizontal line."""

    key: str
    title: str
    note: str
    x: Axis
    y: Axis
    curves: Mapping[int, Curve]  # by side
    mark: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One phase of a bar, in microseconds per step."""

    phase: str
    begin: float
    length: float
    share: float


@dataclass(frozen=True, slots=True)
class Bar:
    """The time of one side, split by phase."""

    side: int
    pieces: tuple[Piece, ...]
    total: str
    whose: str = ""
    """Whose time it is, after the name of the side; empty if the side has one bar."""


@dataclass(frozen=True, slots=True)
class Bars:
    """A panel with stacked bars, time per step split by phase: one per side, or in asynchronous modes two."""

    key: str
    title: str
    note: str
    x: Axis
    bars: tuple[Bar, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases that are wide enough to be visible in some bar, in order."""
        visible = {piece.phase for bar in self.bars for piece in bar.pieces if piece.share >= 0.005}
        return tuple(phase for phase in PHASE_COLOURS if phase in visible)


@dataclass(frozen=True, slots=True)
class Picture:
    """All panels of a comparison: three charts, the bars, and the names of the sides for the legend."""

    names: tuple[str, ...]
    charts: tuple[Chart, Chart, Chart]
    bars: Bars
    note: str
    """How the curves were computed; shown below the panels."""


def make_picture(comparison: Comparison) -> Picture:
    """Compute the panels of a comparison."""
    sides = comparison.sides
    mean = f"mean of the last {EPISODE_WINDOW} episodes"
    if not all(same_task(sides[0], side) for side in sides):
        mean += "; returns of another task are not drawn"

    def own(get: Callable[[RunResult], Series]) -> Callable[[Side], list[Series]]:
        # Returns of another task are not comparable and would only compress the y axis.
        return lambda side: [get(run) for run in side.runs] if same_task(sides[0], side) else []

    score = None if comparison.score is None else (comparison.score, f"score {comparison.score:,.6g}")
    limit_s = max(run.wall_s for side in sides for run in side.runs)
    unit_s, unit = time_unit(limit_s)

    def timed(get: Callable[[RunResult], Series]) -> Callable[[RunResult], Series]:
        return lambda run: Series(get(run).x / unit_s, get(run).y)

    charts = (
        _chart("return-steps", "Return over steps", mean, "steps", sides, own(returns_over_steps), mark=score),
        _chart("return-time", "Return over wall time", mean, unit, sides, own(timed(returns_over_time)), mark=score),
        _chart(
            "fps", "Steps per second over time",
            f"learning included, evaluations and checkpoints not; running mean over {FPS_WINDOW:.0%} of each run",
            unit, sides, lambda side: [timed(fps_over_time)(run) for run in side.runs], zero=True,
        ),
    )  # fmt: skip
    note = "Curves are not smoothed beyond what is said above each panel; time counts from the first step."
    if comparison.grouped:
        note = (
            f"Lines are means over a side's runs, bands the {METHOD} of that mean, as far as all its runs go. " + note
        )
    return Picture(tuple(_legend(side, sides[0]) for side in sides), charts, _bars(sides), note)


def time_unit(longest_s: float) -> tuple[float, str]:
    """The unit for a time axis up to `longest_s`: its seconds and its name."""
    return (1.0, "seconds") if longest_s < 300 else (60.0, "minutes") if longest_s < 10_800 else (3600.0, "hours")


def _chart(
    key: str,
    title: str,
    note: str,
    x_label: str,
    sides: Sequence[Side],
    get: Callable[[Side], list[Series]],
    *,
    zero: bool = False,
    mark: tuple[float, str] | None = None,
) -> Chart:
    found = [average(get(side)) for side in sides]
    curves = {i: curve for i, curve in enumerate(found) if curve is not None}
    right = max((float(curve.x[-1]) for curve in curves.values()), default=1.0)
    low = min((float(curve.mean.min()) for curve in curves.values()), default=0.0)
    high = max((float(curve.mean.max()) for curve in curves.values()), default=1.0)
    if mark is not None and curves:
        low, high = min(low, mark[0]), max(high, mark[0])
    room = BAND_ROOM * (high - low)
    below = min((float(curve.low.min()) for curve in curves.values()), default=low)
    above = max((float(curve.high.max()) for curve in curves.values()), default=high)
    floor = 0.0 if low >= 0 else -math.inf  # no band below zero if no return is negative
    low, high = max(floor, low - room, min(low, below)), min(high + room, max(high, above))
    if zero or 0 < low < 0.5 * high:
        low = 0.0
    return Chart(key, title, note, axis(x_label, 0.0, right), axis("", low, high, margin=0.06), curves, mark)


def _bars(sides: Sequence[Side]) -> Bars:
    bars = []
    for i, side in enumerate(sides):
        total = side.step_us
        if total is None:
            continue
        for whose, shares in _times(side).items():
            begin, pieces = 0.0, []
            for phase, share in shares.items():
                if share * total > 0:
                    pieces.append(Piece(phase, begin, share * total, share))
                    begin += share * total
            bars.append(Bar(i, tuple(pieces), f"{total:,.3g} µs", whose))
    longest = max((bar.pieces[-1].begin + bar.pieces[-1].length for bar in bars if bar.pieces), default=1.0)
    note = "wall time per step by phase; shorter is faster"
    return Bars("phases", "Where the time went", note, axis("microseconds per step", 0.0, longest), tuple(bars))


def _times(side: Side) -> dict[str, dict[str, float]]:
    """The shares of a side's bars, by whose time it is. Asynchronous drivers wait while their workers step the envs."""
    if side.worker_shares and not {"env", "collect"} & set(side.shares):
        return {": driver": side.shares, ": average worker": side.worker_shares}
    return {"": side.shares}


def axis(label: str, low: float, high: float, *, margin: float = 0.0) -> Axis:
    """Make an axis with round ticks; `margin` is the fraction of its length that is added at both ends."""
    if not high > low:
        low, high = low - max(1.0, abs(low)) / 2, high + max(1.0, abs(high)) / 2
    free = margin * (high - low)
    low, high = low if low == 0 else low - free, high + free
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    places = [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(label, low, high, tuple((place, tick_text(place, step)) for place in places))


def tick_text(value: float, step: float) -> str:
    """Format a tick as 500, 1.5k or 20M, with as few digits as the tick distance `step` allows."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and step >= size / 100:
            return f"{value / size:.3f}".rstrip("0").rstrip(".") + sign
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    text = f"{value:,.{digits + (1 if f'{step:e}'.startswith('2.5') else 0)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _legend(side: Side, base: Side) -> str:
    """The name of a side in the legend, shortened, with the number of runs, another task or unfinished runs noted."""
    name = side.name if len(side.name) <= NAME_LENGTH else "…" + side.name[1 - NAME_LENGTH :]
    notes = [f"{len(side.runs)} runs"] if len(side.runs) > 1 else []
    notes += [] if same_task(base, side) else ["another task"]
    notes += [] if all(run.finished for run in side.runs) else ["unfinished"]
    return f"{name} ({', '.join(notes)})" if notes else name

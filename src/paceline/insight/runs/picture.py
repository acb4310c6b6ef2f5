"""What the four panels of a comparison show, without saying how they are drawn.

`plots` draws them into a PNG, `svg` into a page; both take colours, axes and texts from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
"""Colours of the sides, told apart by colour-blind eyes too; more sides begin again, dashed."""
PHASE_COLOURS = {
    "env": "#66CCEE",
    "inference": "#4477AA",
    "collect": "#5599CC",
    "wait": "#EE6677",
    "learn": "#CCBB44",
    "sync": "#AA3377",
    "eval": "#228833",
    "other": "#BBBBBB",
}
DARK_INK = frozenset({"env", "wait", "learn", "other"})
"""Phases whose colour is light enough to be written on in black."""
WIDTHS = (3.2, 1.6)
"""Of the first side's lines and of all others: where curves are the same, both are seen."""
BAND_ROOM = 0.3
"""Bands may stretch the axis by this part of what the curves need; what is beyond is cut off."""
NAME_LENGTH = 34


@dataclass(frozen=True, slots=True)
class Axis:
    """From where to where, and what is written along it."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def place(self, value: float | Array) -> Array:
        """Where a value is, from 0 to 1."""
        return np.asarray((np.asarray(value) - self.low) / (self.high - self.low))


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A curve of one side."""

    side: int
    curve: Curve


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves of all sides; `mark` is a height worth a thin line."""

    key: str
    title: str
    note: str
    x: Axis
    y: Axis
    lines: tuple[PlotLine, ...]
    mark: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One phase of a bar, in microseconds for each step."""

    phase: str
    begin: float
    length: float
    share: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Where one side's time went."""

    side: int
    pieces: tuple[Piece, ...]
    total: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Where the time of all sides went."""

    key: str
    title: str
    note: str
    x: Axis
    bars: tuple[Bar, ...]

    @property
    def phases(self) -> tuple[str, ...]:
        """Those that can be seen, in order."""
        met = {piece.phase for bar in self.bars for piece in bar.pieces if piece.share >= 0.005}
        return tuple(phase for phase in PHASE_COLOURS if phase in met)


@dataclass(frozen=True, slots=True)
class Picture:
    """Three charts, a stack of bars, and the names of the sides for one legend."""

    names: tuple[str, ...]
    charts: tuple[Chart, Chart, Chart]
    bars: Bars
    note: str
    """What the curves are made of, for below the picture."""


def make_picture(comparison: Comparison) -> Picture:
    """Curves and bars of a comparison."""
    sides = comparison.sides
    mean = f"mean of the last {EPISODE_WINDOW} episodes"
    if not all(same_task(sides[0], side) for side in sides):
        mean += "; returns of another task are not drawn"

    def own(get: Callable[[RunResult], Series]) -> Callable[[Side], list[Series]]:
        # Returns of another task on the same axis would only squash those that can be compared.
        return lambda side: [get(run) for run in side.runs] if same_task(sides[0], side) else []

    score = None if comparison.score is None else (comparison.score, f"score {comparison.score:,.6g}")
    limit_s = max(run.wall_s for side in sides for run in side.runs)
    unit_s, unit = (1.0, "seconds") if limit_s < 300 else (60.0, "minutes") if limit_s < 10_800 else (3600.0, "hours")

    def timed(get: Callable[[RunResult], Series]) -> Callable[[RunResult], Series]:
        return lambda run: Series(get(run).x / unit_s, get(run).y)

    charts = (
        _chart("return-steps", "Return over steps", mean, "steps", sides, own(returns_over_steps), mark=score),
        _chart("return-time", "Return over wall time", mean, unit, sides, own(timed(returns_over_time)), mark=score),
        _chart(
            "fps", "Steps per second over time",
            f"learning included, evaluation not; running mean over {FPS_WINDOW:.0%} of each run",
            unit, sides, lambda side: [timed(fps_over_time)(run) for run in side.runs], zero=True,
        ),
    )  # fmt: skip
    note = "Curves are not smoothed beyond what is said above each panel; time counts from the first step."
    if comparison.grouped:
        note = (
            f"Lines are means over a side's runs, bands the {METHOD} of that mean, as far as all its runs go. " + note
        )
    return Picture(tuple(_legend(side, sides[0]) for side in sides), charts, _bars(sides), note)


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
    lines = tuple(PlotLine(i, curve) for i, curve in enumerate(found) if curve is not None)
    right = max((float(line.curve.x[-1]) for line in lines), default=1.0)
    low = min((float(line.curve.mean.min()) for line in lines), default=0.0)
    high = max((float(line.curve.mean.max()) for line in lines), default=1.0)
    if mark is not None and lines:
        low, high = min(low, mark[0]), max(high, mark[0])
    room = BAND_ROOM * (high - low)
    below = min((float(line.curve.low.min()) for line in lines), default=low)
    above = max((float(line.curve.high.max()) for line in lines), default=high)
    floor = 0.0 if low >= 0 else -math.inf  # a band below zero says nothing where no return is
    low, high = max(floor, low - room, min(low, below)), min(high + room, max(high, above))
    if zero or 0 < low < 0.5 * high:
        low = 0.0
    return Chart(key, title, note, axis(x_label, 0.0, right), axis("", low, high, margin=0.06), lines, mark)


def _bars(sides: Sequence[Side]) -> Bars:
    bars = []
    for i, side in enumerate(sides):
        total, begin, pieces = side.step_us, 0.0, []
        if total is None:
            continue
        for phase, share in side.shares.items():
            if share * total > 0:
                pieces.append(Piece(phase, begin, share * total, share))
                begin += share * total
        bars.append(Bar(i, tuple(pieces), f"{total:,.3g} µs"))
    longest = max((bar.pieces[-1].begin + bar.pieces[-1].length for bar in bars if bar.pieces), default=1.0)
    note = "wall time for each step by phase; shorter is faster"
    return Bars("phases", "Where the time went", note, axis("microseconds per step", 0.0, longest), tuple(bars))


def axis(label: str, low: float, high: float, *, margin: float = 0.0) -> Axis:
    """An axis with round ticks; `margin` is the part of its length that is left free at the ends."""
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
    """500, 1.5k, 20M: as short as the distance to the next tick allows."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and step >= size / 100:
            return f"{value / size:.3f}".rstrip("0").rstrip(".") + sign
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    text = f"{value:,.{digits + (1 if f'{step:e}'.startswith('2.5') else 0)}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def _legend(side: Side, base: Side) -> str:
    """A name that fits into a legend, with what a reader must not overlook."""
    name = side.name if len(side.name) <= NAME_LENGTH else "…" + side.name[1 - NAME_LENGTH :]
    notes = [f"{len(side.runs)} runs"] if len(side.runs) > 1 else []
    notes += [] if same_task(base, side) else ["another task"]
    notes += [] if all(run.finished for run in side.runs) else ["unfinished"]
    return f"{name} ({', '.join(notes)})" if notes else name

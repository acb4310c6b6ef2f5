"""Sums a comparison up in one sentence: speed-up, whether learning differs, and the phase that takes most time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.insight.runs.curves import returns_over_steps, same_course, side_by_side
from paceline.insight.runs.intervals import METHOD, Interval, mean_interval
from paceline.insight.runs.likeness import Difference, DifferenceKind, differences, same_task
from paceline.insight.runs.sides import Side
from paceline.measure.limit import limited_by
from paceline.measure.panel import number, plural

TIE = 0.05
"""Speeds whose ratio differs from 1 by less than this are called equal."""
OVERLAP = 0.9
"""Learning is called the same if the intervals overlap on at least this fraction of the common steps."""
SHOWN_DIFFERENCES = 3


def subject(sides: Sequence[Side]) -> Side | None:
    """The side that the verdict is about: the fastest other side with the same task as the first; None if none has."""
    base, *others = sides
    return max((side for side in others if same_task(base, side)), key=lambda side: side.fps.mean, default=None)


def verdict(sides: Sequence[Side]) -> str:
    """One sentence that compares the fastest other side with the first one, or sums up the runs of a single side."""
    if len(sides) == 1:
        return _summary(sides[0])
    base, other = sides[0], subject(sides)
    if other is None:
        tasks = [difference for difference in differences(sides) if difference.kind is DifferenceKind.TASK]
        return f"These runs cannot be compared, neither in speed nor in learning: they differ in {_list(tasks)}."
    grave = [difference for difference in differences([base, other]) if difference.kind is not DifferenceKind.DETAIL]
    name = other.name
    if other.num_workers:
        name += f" ({plural(other.num_workers, 'worker')})"
    if len(sides) > 2:
        name = f"{'the' if grave else 'The'} fastest other side, {name},"
    opening = f"Not like for like ({_list(grave)}): " if grave else ""
    ratio = other.faster_than(base)
    if ratio is None:
        slow = base if base.fps.low <= 0 else other
        return f"{opening}{slow.name} took no steps, so there is nothing to compare."
    odd = [side.name for side in sides if not same_task(base, side)]
    rest = f"; {' and '.join(odd)} did another task and cannot be compared" if odd else ""
    return f"{opening}{name} {_speed(other, base, ratio)}, {_learning(other, base)}{_limit(other)}{rest}."


def _summary(side: Side) -> str:
    """One sentence about the runs of one config: the means over its seeds."""
    runs, parts = side.runs, []
    for what, values in (
        ("final evaluation", [run.final_eval for run in runs]),
        ("mean return of the last 100 episodes", [run.mean_return for run in runs]),
    ):
        known = [value for value in values if value is not None]
        if len(known) == len(runs):
            mean = mean_interval(known)
            parts.append(f"{what} {number(mean.mean)} ± {number(mean.half_width)}")
    parts.append(f"{side.fps.mean:,.0f} ± {side.fps.half_width:,.0f} steps/s")
    of = f"{len(runs)} seeds of one config ({runs[0].mode or 'run'} on {runs[0].env})"
    return f"{of}: {', '.join(parts)} (mean ± half of its {METHOD})."


def _speed(other: Side, base: Side, ratio: Interval) -> str:
    rates = f"{other.fps.mean:,.0f} against {base.fps.mean:,.0f} steps/s"
    if ratio.n > 1:
        rates += f"; {METHOD} {ratio.low:.2f} to {ratio.high:.2f}"
    if ratio.n > 1 and ratio.low <= 1 <= ratio.high:
        closeness = "about as fast as" if abs(ratio.mean - 1) < TIE else "not reliably faster or slower than"
        return f"ran {closeness} {base.name} ({rates})"
    if abs(ratio.mean - 1) < TIE:
        return f"ran about as fast as {base.name} ({rates})"
    if ratio.mean > 1:
        return f"ran {ratio.mean:.2f} times as fast as {base.name} ({rates})"
    return f"ran slower than {base.name}, at {ratio.mean:.2f} times its speed ({rates})"


def _learning(other: Side, base: Side) -> str:
    if same := _identical(other, base):
        return same
    pair = side_by_side([returns_over_steps(run) for run in other.runs], [returns_over_steps(run) for run in base.runs])
    if pair is None:
        return "recorded too little to compare learning"
    a, b = pair
    steps = f"{a.x[-1]:,.0f} steps"
    mean = f"mean return of {number(float(a.mean.mean()))} against {number(float(b.mean.mean()))}"
    if a.n < 2 or b.n < 2:
        return f"had a {mean} over the first {steps} (a side has a single run, so this may be chance)"
    overlap = float(np.mean((a.low <= b.high) & (b.low <= a.high)))
    where = f"{overlap:.0%} of the first {steps}"
    if overlap >= OVERLAP:
        return f"learned the same as far as {a.n} against {b.n} runs can show (their {METHOD}s overlap on {where})"
    word = "better" if a.mean.mean() > b.mean.mean() else "worse"
    return f"learned {word} per step ({mean}; their {METHOD}s overlap on only {where})"


def _identical(other: Side, base: Side) -> str | None:
    """The text for bit-identical learning; None unless every run equals the run of the same seed on the other side."""
    by_seed = {run.seed: run for run in base.runs}
    if None in by_seed or sorted(by_seed, key=str) != sorted((run.seed for run in other.runs), key=str):
        return None
    pairs = [(run, by_seed[run.seed]) for run in other.runs]
    if all(a.weights_sha256 and a.weights_sha256 == b.weights_sha256 and a.steps == b.steps for a, b in pairs):
        return f"learned exactly the same (identical weights after {max(a.steps for a, _ in pairs):,} steps)"
    common = [same_course(a, b) for a, b in pairs]
    steps = [count for count in common if count is not None]
    if len(steps) < len(pairs):
        return None
    shown = f"{min(steps):,}" + ("" if len(set(steps)) == 1 else f" to {max(steps):,}")
    return f"learned the same step for step (identical returns and losses over the {shown} steps that both took)"


def _limit(side: Side) -> str:
    if side.supply is not None and (shortage := side.supply.shortage()):
        return f", and got too little CPU to tell what limits it: {shortage}"
    limit = limited_by(side.shares, side.worker_shares)
    return f", and is now limited by {limit}" if limit else ""


def _list(found: Sequence[Difference]) -> str:
    shown = [str(difference) for difference in found[:SHOWN_DIFFERENCES]]
    more = len(found) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")

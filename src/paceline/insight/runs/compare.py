"""Compares sides (one run, or several seeds) with the first one: speed-up, learning, and time per phase.

A single side of several seeds is summed up: means, intervals and ranges.

    run folders -> `sides` -> `compare` -> table, `picture` (`plots`, `page`) and `report`

The result is a table of text: `as_table` for a terminal, `as_text` for a file or a pipe. This module writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rich.table import Table
from rich.text import Text

from paceline.errors import ConfigError
from paceline.insight.runs.curves import Reached
from paceline.insight.runs.intervals import METHOD, mean_interval
from paceline.insight.runs.likeness import Difference, differences, remarks, same_task
from paceline.insight.runs.results import RunResult
from paceline.insight.runs.sides import PHASES, Side
from paceline.insight.runs.verdict import verdict
from paceline.measure.panel import duration, number, rate
from paceline.measure.record import ACTIVITIES
from paceline.measure.statistic import statistics

MISSING = "-"
HASH_DIGITS = 12
"""Digits of a hash in the table: enough to see whether two are equal."""
SHORT_S = 120.0
"""Times below are shown in seconds."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One line of the table."""

    label: str
    cells: tuple[str, ...]  # one for each side


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing sides with the first one."""

    sides: tuple[Side, ...]
    rows: tuple[ComparisonRow, ...]
    verdict: str
    """One sentence that sums the comparison up."""
    remarks: tuple[str, ...]
    """Warnings about the numbers, e.g. that the runs differ in n_envs; may be empty."""
    differences: tuple[Difference, ...]
    score: float | None
    """The mean return whose time the table shows; None if the runs have no score in common."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sides."""
        return tuple(side.name for side in self.sides)

    @property
    def grouped(self) -> bool:
        """Whether any side has several runs."""
        return any(len(side.runs) > 1 for side in self.sides)

    @property
    def one_config(self) -> bool:
        """Whether there is only one side: seeds of one config, with nothing to compare them with."""
        return len(self.sides) == 1

    def as_table(self) -> Table:
        """The table for a terminal (rich)."""
        table = Table(title=None, box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for name in self.names:
            table.add_column(Text(name), justify="right", overflow="fold")
        for row in self.rows:
            style = "bold" if row.label in ("steps/s", "speed-up") else None
            table.add_row(row.label, *(Text(cell) for cell in row.cells), style=style)
        return table

    def as_text(self) -> str:
        """The table as plain text."""
        lines = [("", *self.names), *((row.label, *row.cells) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.names) + 1)]
        text = []
        for label, *cells in lines:
            padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            text.append("  ".join([label.ljust(widths[0]), *padded]).rstrip())
        return "\n".join(text) + "\n"


def compare(sides: Sequence[Side], *, score: float | None = None) -> Comparison:
    """Compare sides; speed-up and efficiency are relative to the first.

    Args:
        sides: Two or more, or one with several runs.
        score: Mean return for the rows "time to" and "steps to". Default: the highest that every run has reached.
    """
    alone = len(sides) == 1
    if not sides or (alone and len(sides[0].runs) < 2):
        raise ConfigError(f"compare: needs at least two runs, not {len(sides)}. Add another run folder.")
    found = differences(sides)
    base, grouped = sides[0], any(len(side.runs) > 1 for side in sides)
    alike = [side for side in sides if same_task(base, side)]
    raced = [] if alone else alike
    if score is None and sum(len(side.runs) for side in alike) > 1:
        score = common_score(alike)

    def row(label: str, cell: Callable[[Side], str]) -> ComparisonRow:
        return ComparisonRow(label, tuple(cell(side) for side in sides))

    def of(label: str, value: Callable[[RunResult], float | None], show: Callable[[float], str]) -> ComparisonRow:
        return row(label, lambda side: _spread([value(run) for run in side.runs], show, ranged=alone))

    rows = [
        row("state", _state),
        *([row("runs", lambda side: str(len(side.runs)))] if grouped else []),
        row("seeds" if grouped else "seed", _seeds),
        row("mode", lambda side: " or ".join(dict.fromkeys(run.mode or MISSING for run in side.runs))),
        row("workers", lambda side: _either([run.num_workers for run in side.runs], _workers)),
        row("envs", lambda side: _either([run.n_envs for run in side.runs], "{:,}".format)),
        of("steps", lambda run: run.steps, "{:,.0f}".format),
        of("episodes", lambda run: run.episodes, "{:,.0f}".format),
        of("start-up", lambda run: run.startup_s, seconds),
        of("time", lambda run: run.wall_s, seconds),
        of("steps/s", lambda run: run.fps, "{:,.0f}".format),
        of("episodes/s", lambda run: run.episodes_per_s, rate),
        row("speed-up", lambda side: _speed_up(side, base) if side in raced else MISSING),
        row("efficiency per worker", lambda side: _percent(efficiency(side, base) if side in raced else None)),
        of("final evaluation", lambda run: run.final_eval, number),
        of("best evaluation", lambda run: run.best_eval, number),
        of("mean return (last 100)", lambda run: run.mean_return, number),
        row("weights (sha256)", _weights),
    ]
    recorded = dict.fromkeys(tag for side in sides for run in side.runs for tag in run.progress)
    for tag, statistic in statistics(recorded).items():
        rows.append(of(statistic.label, partial(RunResult.newest, tag=tag), statistic.show))
    if score is not None:
        goal, count = f"{score:,.6g}", "{:,.0f}".format
        hits = {side: [scores.reached(score) for scores in side.scores] for side in sides}
        rows += [
            row(f"time to {goal}", lambda side: _when(hits[side], lambda hit: hit.seconds, seconds, ranged=alone)),
            row(f"steps to {goal}", lambda side: _when(hits[side], lambda hit: hit.steps, count, ranged=alone)),
        ]
    rows += [
        of("peak memory (PSS)", lambda run: run.peak_memory_mb, lambda mb: f"{mb:,.0f} MB"),
        of("CPU use (100% = a core)", lambda run: run.cpu_percent, lambda percent: f"{percent:,.0f}%"),
        of("CPU use of others", lambda run: None if run.supply is None else 100 * run.supply.others, "{:,.0f}%".format),
        of("policy lag, mean", lambda run: run.lag_mean, "{:,.2g}".format),
        of("policy lag, largest", lambda run: run.lag_max, "{:,.0f}".format),
        of("dropped steps", lambda run: run.dropped_steps, "{:,.0f}".format),
        of("worker restarts", lambda run: run.restarts, "{:,.3g}".format),
    ]
    shares = [side.shares for side in sides]
    for name in PHASES:
        if any(share.get(name, 0.0) >= 0.0005 for share in shares):
            rows.append(ComparisonRow(f"time in {name}", tuple(_percent(_share(share, name)) for share in shares)))
    in_workers = [side.worker_shares for side in sides]
    for name in ACTIVITIES:
        if any(share.get(name, 0.0) >= 0.0005 for share in in_workers):
            cells = (_percent(share.get(name, 0.0) if share else None) for share in in_workers)
            rows.append(ComparisonRow(f"workers: {name}", tuple(cells)))
    kept = tuple(row for row in rows if set(row.cells) != {MISSING})
    return Comparison(tuple(sides), kept, verdict(sides), remarks(sides, found), found, score)


def efficiency(side: Side, base: Side) -> float | None:
    """Speed-up divided by the ratio of worker counts; 1 is linear scaling. None if a worker count is unknown."""
    faster = side.faster_than(base)
    if faster is None or side.num_workers is None or base.num_workers is None:
        return None
    return faster.mean * max(1, base.num_workers) / max(1, side.num_workers)


def common_score(sides: Sequence[Side]) -> float | None:
    """The highest mean return of 100 episodes that every run has reached, rounded down to two digits.

    None if a run has not finished 100 episodes.
    """
    bests = [scores.best for side in sides for scores in side.scores]
    known = [best for best in bests if best is not None]
    if len(known) < len(bests):
        return None
    lowest = min(known)
    if lowest == 0:
        return 0.0
    digit = 10.0 ** (math.floor(math.log10(abs(lowest))) - 1)
    return float(f"{math.floor(lowest / digit + 1e-9) * digit:.6g}")


def seconds(value: float) -> str:
    """Format seconds: 8.3 s below two minutes, else 1:02:05."""
    return f"{value:.1f} s" if value < SHORT_S else duration(value)


def interval_note(comparison: Comparison) -> str | None:
    """The sentence that explains ± in the table; None if no side has several runs."""
    if not comparison.grouped:
        return None
    ends = " In brackets: the smallest and the largest value." if comparison.one_config else ""
    return f"± is half of the {METHOD} of the mean over a side's runs.{ends}"


def _spread(values: Sequence[float | None], show: Callable[[float], str], *, ranged: bool) -> str:
    """The mean and half of its interval; with `ranged` also the smallest and the largest value."""
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    interval = mean_interval(known)
    if interval.half_width == 0:
        return show(interval.mean)
    ends = f" ({show(min(known))} to {show(max(known))})" if ranged else ""
    return f"{show(interval.mean)} ± {show(interval.half_width)}{ends}"


def _when(
    hits: Sequence[Reached | None],
    value: Callable[[Reached], float],
    show: Callable[[float], str],
    *,
    ranged: bool,
) -> str:
    reached = [value(hit) for hit in hits if hit is not None]
    if not reached:
        return "not reached"
    missed = f" ({len(reached)} of {len(hits)} runs)" if len(reached) < len(hits) else ""
    return _spread(reached, show, ranged=ranged) + missed


def _state(side: Side) -> str:
    finished = sum(run.finished for run in side.runs)
    if finished == len(side.runs):
        return "finished"
    return "unfinished" if not finished else f"{finished} of {len(side.runs)} finished"


def _seeds(side: Side) -> str:
    seeds = [MISSING if run.seed is None else str(run.seed) for run in side.runs]
    return MISSING if set(seeds) == {MISSING} else ", ".join(seeds)


def _weights(side: Side) -> str:
    """The first digits of the hash of the final weights; of a single run, as hashes have no mean."""
    whole = side.runs[0].weights_sha256 if len(side.runs) == 1 else None
    return MISSING if whole is None else whole[:HASH_DIGITS]


def _speed_up(side: Side, base: Side) -> str:
    ratio = side.faster_than(base)
    if ratio is None:
        return MISSING
    return f"{ratio.mean:.2f}x" + (f" ({ratio.low:.2f}-{ratio.high:.2f})" if ratio.n > 1 and side is not base else "")


def _either(values: Sequence[int | None], show: Callable[[int], str]) -> str:
    return " or ".join(dict.fromkeys(MISSING if value is None else show(value) for value in values))


def _workers(count: int) -> str:
    return f"{count}" if count else "0 (sequential)"


def _share(shares: Mapping[str, float], name: str) -> float | None:
    """Share of a phase; None if the run did not record it separately (`collect` is `env` and `inference` together).

    In asynchronous modes, workers step the envs while the driver does something else: it has neither of them.
    """
    parts = ("env", "inference")
    if name == "collect" and name not in shares and any(part in shares for part in parts):
        return sum(shares.get(part, 0.0) for part in parts)
    if not shares or (name in (*parts, "collect") and name not in shares):
        return None
    return shares.get(name, 0.0)


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"

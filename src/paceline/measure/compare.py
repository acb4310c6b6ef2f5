"""Two or more runs side by side: how much faster, how well each learned, where the time went.

`read_run` takes what a run folder says of itself, `compare` puts runs against the first of them,
and the result is rows of text: `as_table` for a terminal, `as_text` for a file or a pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.table import Table

from paceline.errors import ConfigError
from paceline.measure.panel import duration, number, phase_shares, plural
from paceline.measure.results import RunResult

TIE = 0.05
"""Speeds that differ by less are called equal."""

MISSING = "-"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    label: str
    cells: tuple[str, ...]  # one for each run


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs against the first of them."""

    runs: tuple[RunResult, ...]
    names: tuple[str, ...]
    rows: tuple[Row, ...]
    verdict: str
    """One sentence."""
    remarks: tuple[str, ...]
    """Why the runs may not be comparable; empty when they are."""

    def as_table(self) -> Table:
        """For a terminal."""
        table = Table(title=None, box=None, pad_edge=False, header_style="bold")
        table.add_column("")
        for name in self.names:
            table.add_column(name, justify="right", overflow="fold")
        for row in self.rows:
            style = "bold" if row.label in ("steps/s", "speed-up") else None
            table.add_row(row.label, *row.cells, style=style)
        return table

    def as_text(self) -> str:
        """The table, the verdict and the remarks as plain text."""
        lines = [("", *self.names), *((row.label, *row.cells) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.names) + 1)]
        text = []
        for label, *cells in lines:
            padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            text.append("  ".join([label.ljust(widths[0]), *padded]))
        return "\n".join([*text, "", self.verdict, *(f"note: {remark}" for remark in self.remarks)]) + "\n"


def compare(runs: Sequence[RunResult]) -> Comparison:
    """Put runs side by side; speed-up and efficiency are against the first."""
    if len(runs) < 2:
        raise ConfigError(f"compare: needs at least two runs, not {len(runs)}. Name another run folder.")
    names = _names(runs)
    base = runs[0]
    rows = [
        Row("state", tuple("finished" if run.finished else "unfinished" for run in runs)),
        Row("workers", tuple(_or_missing(run.num_workers, _workers) for run in runs)),
        Row("envs", tuple(_or_missing(run.n_envs, "{:,}".format) for run in runs)),
        Row("steps", tuple(f"{run.steps:,}" for run in runs)),
        Row("episodes", tuple(f"{run.episodes:,}" for run in runs)),
        Row("time", tuple(duration(run.wall_s) for run in runs)),
        Row("steps/s", tuple(f"{run.fps:,.0f}" for run in runs)),
        Row("speed-up", tuple(_or_missing(speed_up(run, base), "{:.2f}x".format) for run in runs)),
        Row("efficiency per worker", tuple(_or_missing(efficiency(run, base), "{:.0%}".format) for run in runs)),
        Row("final evaluation", tuple(_or_missing(run.final_eval, number) for run in runs)),
        Row("best evaluation", tuple(_or_missing(run.best_eval, number) for run in runs)),
        Row("mean return (last 100)", tuple(_or_missing(run.mean_return, number) for run in runs)),
        Row("peak memory", tuple(_or_missing(run.peak_memory_mb, "{:,.0f} MB".format) for run in runs)),
        Row("workers replaced", tuple(_or_missing(run.restarts, "{:,}".format) for run in runs)),
    ]
    shares = [phase_shares([run.phases], run.wall_s) if run.phases else {} for run in runs]
    for name in dict.fromkeys(name for share in shares for name in share):
        cells = tuple(f"{share.get(name, 0.0):.0%}" if share else MISSING for share in shares)
        rows.append(Row(f"time in {name}", cells))
    shown = tuple(row for row in rows if set(row.cells) != {MISSING})
    return Comparison(tuple(runs), names, shown, _verdict(runs, names), _remarks(runs, names))


def speed_up(run: RunResult, base: RunResult) -> float | None:
    """Steps per second against the base; None where the base has none."""
    return run.fps / base.fps if base.fps > 0 else None


def efficiency(run: RunResult, base: RunResult) -> float | None:
    """Speed-up by workers: 1 is all that the processes could give. None where a worker count is unknown."""
    faster = speed_up(run, base)
    if faster is None or run.num_workers is None or base.num_workers is None:
        return None
    return faster * max(1, base.num_workers) / max(1, run.num_workers)


def _verdict(runs: Sequence[RunResult], names: Sequence[str]) -> str:
    base, base_name = runs[0], names[0]
    run, name = max(zip(runs[1:], names[1:], strict=True), key=lambda pair: pair[0].fps)
    faster = speed_up(run, base)
    if faster is None:
        return f"{base_name} took no steps, so there is nothing to compare with."
    if run.num_workers:
        name += f" ({plural(run.num_workers, 'worker')})"
    if len(runs) > 2:
        name = f"The fastest other run, {name},"
    rates = f"{run.fps:,.0f} against {base.fps:,.0f} steps/s"
    if abs(faster - 1) < TIE:
        text = f"{name} ran about as fast as {base_name}: {rates}"
    elif faster > 1:
        text = f"{name} ran {faster:.2f} times as fast as {base_name}: {rates}"
    else:
        text = f"{name} ran slower than {base_name}, at {faster:.2f} times its speed: {rates}"
        if shares := phase_shares([run.phases], run.wall_s) if run.phases else {}:
            worst = max(shares, key=lambda phase: shares[phase])
            text += f", with {shares[worst]:.0%} of its time in {worst}"
    if run.final_eval is not None and base.final_eval is not None:
        text += f"; evaluation {number(run.final_eval)} against {number(base.final_eval)}"
    return text + "."


def _remarks(runs: Sequence[RunResult], names: Sequence[str]) -> tuple[str, ...]:
    remarks = []
    for what, values in (
        ("env", [run.env for run in runs]),
        ("algo", [run.algo for run in runs]),
        ("n_envs", [run.n_envs for run in runs]),
    ):
        known = [value for value in values if value is not None]
        if len(set(known)) > 1:
            remarks.append(f"the runs differ in {what} ({', '.join(str(v) for v in values)}): not like for like.")
    for run, name in zip(runs, names, strict=True):
        if not run.finished:
            remarks.append(f"{name} is unfinished ({run.stop_reason}): its numbers are of what it did.")
    return tuple(remarks)


def _names(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """Folder names where they differ, else whole paths."""
    names = [run.path.resolve().name for run in runs]
    return tuple(names if len(set(names)) == len(names) else [str(run.path) for run in runs])


def _workers(count: int) -> str:
    return f"{count}" if count else "0 (sequential)"


def _or_missing(value: _T | None, show: Callable[[_T], str]) -> str:
    return MISSING if value is None else show(value)

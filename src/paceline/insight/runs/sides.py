"""The sides of a comparison. A side is one run, or several runs of the same settings with different seeds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import ConfigError
from paceline.insight.runs.curves import ReturnCurve, read_scores
from paceline.insight.runs.intervals import Interval, mean_interval, ratio_interval
from paceline.insight.runs.results import RunResult
from paceline.measure.cpu import CpuSupply, mean_supply
from paceline.measure.view import activity_shares, phase_shares

PHASES = ("env", "inference", "collect", "wait", "learn", "sync", "eval", "checkpoint", "record", "other")
"""Phases in the order of tables and plots. `collect` is env and inference together, for runs that do not split them."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One or more runs that are compared as a unit."""

    name: str
    runs: tuple[RunResult, ...]
    scores: tuple[ReturnCurve, ...]  # one per run

    @property
    def fps(self) -> Interval:
        """Steps per second; learning included, evaluation not."""
        return mean_interval([run.fps for run in self.runs])

    @property
    def num_workers(self) -> int | None:
        """Number of workers; None if it is unknown or differs between runs."""
        found = {run.num_workers for run in self.runs}
        return found.pop() if len(found) == 1 else None

    @property
    def shares(self) -> dict[str, float]:
        """Share of the wall time by phase, in the order of `PHASES`; empty if no run has recorded phases."""
        known = [run for run in self.runs if run.phases]
        shares = phase_shares([run.phases for run in known], sum(run.wall_s for run in known))
        named = {name: shares.pop(name) for name in PHASES[:-1] if name in shares}
        return {**named, "other": sum(shares.values())} if shares or named else {}

    @property
    def worker_shares(self) -> dict[str, float]:
        """Share of the time of the average worker by activity; empty if no run has workers."""
        return activity_shares([run.worker_s for run in self.runs])

    @property
    def supply(self) -> CpuSupply | None:
        """CPU time that the runs got, on average; None if no run has recorded it."""
        return mean_supply(run.supply for run in self.runs if run.supply is not None)

    @property
    def step_us(self) -> float | None:
        """Wall-clock microseconds per step, with all phases; None if no run has recorded phases."""
        known = [run for run in self.runs if run.phases]
        steps = sum(run.steps for run in known)
        return 1e6 * sum(run.wall_s for run in known) / steps if steps else None

    def faster_than(self, base: Side) -> Interval | None:
        """Speed-up: ratio of steps per second to that of `base`; None if a run took no steps."""
        return ratio_interval([run.fps for run in self.runs], [run.fps for run in base.runs])


def make_sides(groups: Sequence[tuple[str | None, Sequence[RunResult]]]) -> tuple[Side, ...]:
    """Make sides of runs, with unique names.

    Args:
        groups: For each side its name (None: the name of its folder) and its runs.

    Raises:
        ConfigError: A run is twice on one side; names its folder.
    """
    for _, runs in groups:
        paths = Counter(run.path.resolve() for run in runs)
        if twice := [path for path, count in paths.items() if count > 1]:
            raise ConfigError(f"run {str(twice[0])!r}: is twice on one side. Give every run of a side once.")
    short = [name if name and len(runs) > 1 else _text(runs[0].path.resolve().name) for name, runs in groups]
    counts = Counter(short)
    names, met = [], Counter[str]()
    for (_, runs), name in zip(groups, short, strict=True):
        met[name] += 1
        if counts[name] == 1:
            names.append(name)
        else:
            path = _text(str(runs[0].path))
            names.append(f"{name} {met[name]}" if len(runs) > 1 or path in names else path)
    return tuple(
        Side(name, tuple(runs), tuple(read_scores(run) for run in runs))
        for name, (_, runs) in zip(names, groups, strict=True)
    )


def _text(path: str) -> str:
    """A path as printable text. File names may contain bytes that are not valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")

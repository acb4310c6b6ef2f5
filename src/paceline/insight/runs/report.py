"""Writes a comparison as a plain-text report: verdict, table, remarks, runs, machine and method."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.insight.runs.columns import section_of
from paceline.insight.runs.compare import Comparison, interval_note
from paceline.insight.runs.curves import EPISODE_WINDOW
from paceline.insight.runs.likeness import machine
from paceline.insight.runs.results import RunResult

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the lines below it; a line that begins with `$ ` is a command."""

    title: str
    lines: tuple[str, ...]


def make_report(comparison: Comparison) -> str:
    """The content of the text file."""
    title = title_of(comparison)
    parts = [title, "=" * len(title), "", *textwrap.wrap(comparison.verdict, WIDTH), "", comparison.as_text().rstrip()]
    if comparison.remarks:
        parts += ["", "Remarks", "-------"]
        for remark in comparison.remarks:
            parts += textwrap.wrap(remark, WIDTH, initial_indent="- ", subsequent_indent="  ")
    for section in sections(comparison):
        parts += ["", section.title, "-" * len(section.title)]
        for line in section.lines:
            parts += [f"  {line}"] if line.startswith("$ ") else textwrap.wrap(line, WIDTH)
    return "\n".join(parts) + "\n"


def title_of(comparison: Comparison) -> str:
    """The title: algorithm, env and the names of the sides."""
    runs = [run for side in comparison.sides for run in side.runs]
    names = list(comparison.names)
    against = " against ".join(names) if len(names) <= 3 else f"{names[0]} against {len(names) - 1} others"
    if comparison.one_config:
        against = f"{names[0]}, {len(runs)} seeds"
    envs, algos = (
        {value for value in values if value} for values in zip(*((r.env, r.algo) for r in runs), strict=True)
    )
    if len(envs) == 1 and len(algos) == 1:
        return f"{algos.pop()} on {envs.pop()}: {against}"
    return against


def sections(comparison: Comparison) -> tuple[Section, ...]:
    """The sections below the table: the runs, the machine, and the method of measurement."""
    runs: list[str] = []
    for side in comparison.sides:
        for run in side.runs:
            name = side.name if len(side.runs) == 1 else f"{side.name}, seed {run.seed}"
            runs.append(f"{name}: {run.path}, {'finished' if run.finished else 'unfinished'} ({run.stop_reason}).")
            runs.append(f"$ {run.command}" if run.command else "The command is not known.")
    return (
        Section("The runs", tuple(runs)),
        Section("The machine", tuple(_machines([run for side in comparison.sides for run in side.runs]))),
        Section("How it was measured", tuple(_notes(comparison))),
    )


def _machines(runs: Sequence[RunResult]) -> list[str]:
    found = Counter[str]()
    for run in runs:
        parts = [machine(run) or "unknown"]
        if isinstance(memory := run.machine.get("memory_mb"), int | float):
            parts.append(f"{memory / 1024:,.0f} GB")
        if isinstance(platform := run.machine.get("platform"), str):
            parts.append(platform)
        if isinstance(python := run.machine.get("python"), str):
            parts.append(f"Python {python}")
        parts += [f"{name} {version}" for name, version in section_of(run.machine, "versions").items()]
        found[", ".join(parts)] += 1
    if len(found) == 1:
        return [f"{text}." for text in found]
    return [f"{text} ({count} of {len(runs)} runs)." for text, count in found.items()]


def _notes(comparison: Comparison) -> list[str]:
    base = comparison.names[0]
    notes = [
        "steps/s counts env steps over the time of training: learning included; start-up, evaluation, checkpoints not.",
        *([] if comparison.one_config else [f"Speed-up is steps/s against {base}; efficiency is speed-up per worker."]),
        "Time counts from the first step on; start-up (workers, envs, calibration) comes before it.",
        "Phases are parts of that time, measured in the learner's process.",
    ]
    if comparison.score is not None:
        notes.append(
            f"Time and steps to {comparison.score:,.6g}: until the mean return of the last {EPISODE_WINDOW} episodes "
            "first is that high, by episodes.csv. Without --score it is the highest that every run has reached, "
            "rounded down to two digits."
        )
    if (note := interval_note(comparison)) is not None:
        notes += [f"{note} It is wide if a side has few runs."]
        if not comparison.one_config:
            notes += ["The interval of a speed-up is Welch's t-interval of the difference of logarithms."]
    return notes

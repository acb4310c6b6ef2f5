"""Store what a benchmark measured: JSON for programs, markdown for people.

Each result carries its command and the state of the machine, so that the measurement can be repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

from benchmarks.harness import host
from benchmarks.harness.paths import LOGS, RESULTS, SOURCE
from paceline.measure.machine import system_info

BUSY_PERCENT = 15.0
"""Results are not stored in results/ if other programs use more than this share of all cores."""


Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """How busy the machine is while the benchmark does nothing."""

    load: float
    """Load average of the last minute; it still includes a benchmark that has just ended."""
    percent: float
    """CPU use of all cores, over two seconds."""
    slow_percent: float
    """Share of their time in which idle cores ran slowly (host.py)."""

    @classmethod
    def now(cls) -> MachineLoad:
        """Sample for some seconds; blocks."""
        return cls(round(os.getloadavg()[0], 2), psutil.cpu_percent(interval=2.0), host.slow_percent())


def conditions(before: MachineLoad) -> dict[str, Any]:
    """Command, commit and machine of this benchmark, and the load before and after it.

    Args:
        before: Sampled when the benchmark began.
    """
    info, after = system_info(), MachineLoad.now()
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": command_line(),
        "load": [before.load, after.load],
        "busy_percent": [before.percent, after.percent],
        "slow_percent": [before.slow_percent, after.slow_percent],
        "quiet": max(before.percent, after.percent) < BUSY_PERCENT,
        "cpu": info["cpu"],
        "cores": len(info["cores"]["affinity"]),
        "python": info["python"],
        "versions": info["versions"],
    }


def command_line() -> str:
    """The command that runs this process again from the project's root."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    target = [sys.argv[0]] if spec is None else ["-m", spec.name]
    return shlex.join(["python", *target, *sys.argv[1:]])


def _commit() -> str | None:
    """Newest commit of the source, with a plus if files have changed since. None without git."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words, "--", str(SOURCE)], cwd=SOURCE, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    newest = git("log", "-1", "--format=%h")
    return f"{newest}+" if newest and git("status", "--porcelain") else newest or None


def describe_load(machine: Mapping[str, Any]) -> str:
    """CPU use by other programs and by other virtual machines, as a sentence."""
    busy, busy_after = machine["busy_percent"]
    text = f"other programs used {busy:.0f} % of the cores before, {busy_after:.0f} % after"
    if slow := machine.get("slow_percent"):  # older results do not have this entry
        text += (
            f"; other virtual machines slowed the cores for {slow[0]:.0f} % of the time before, {slow[1]:.0f} % after"
        )
    return f"{text}."


def median_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median and the spread, which is half the interquartile range."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float((high - low) / 2)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; all columns but the first are aligned right."""
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def add_size_flags(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    """Add `--rounds` and `--quick`, which mean the same in all suites."""
    parser.add_argument("--rounds", type=int, default=rounds, help="measurements of each variant; medians are reported")
    parser.add_argument("--quick", action="store_true", help="only check that it runs: tiny sizes, no stored results")


def interleave(cells: Mapping[Key, Callable[[], float]], rounds: int) -> dict[Key, list[float]]:
    """Measure every cell once per round, alternating the order, so that a drifting machine favours no cell."""
    found: dict[Key, list[float]] = {key: [] for key in cells}
    for number in range(rounds):
        for key in list(cells)[:: -1 if number % 2 else 1]:
            found[key].append(cells[key]())
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Median of `above / below` round by round, and its spread."""
    return median_spread([one / other for one, other in zip(above, below, strict=True)])


def format_ratio(value: float, spread: float) -> str:
    """A ratio and its spread, as in `1.74 ± 0.02`."""
    return f"{value:.2f} ± {spread:.2f}"


def publish(
    name: str, title: str, body: str, result: Mapping[str, Any], machine: Mapping[str, Any], *, keep: bool = True
) -> Path:
    """Print the result; write `NAME.json` and `NAME.md`.

    Args:
        name: Stem of the files, and name of the figures in the docs.
        title: Heading of the page.
        body: Markdown. The JSON stores it as `fragment`, which `figures.py` copies into the docs.
        result: All measurements.
        machine: Return value of `conditions`.
        keep: False for a run that only tries the program.

    Returns:
        The folder with the files: results/, or .logs/ if other programs were running or `keep` is False.
    """
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items() if version)
    load, load_after = machine["load"]
    text = (
        f"# {title}\n\n{body}\n\n"
        f"`{machine['command']}`\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, {versions}. "
        f"Load average before {load:.2f}, after {load_after:.2f}; "
        f"{describe_load(machine)}\n"
    )
    print(text)
    folder = RESULTS if keep and machine["quiet"] else LOGS
    if not machine["quiet"]:
        print(f"Other programs used more than {BUSY_PERCENT:.0f} % of the cores. Measure again on an idle machine.")
    if folder is LOGS:
        print(f"Not stored in results/; this run's page is {folder.name}/{name}.md.")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({**result, "fragment": body, "machine": machine}, indent=2) + "\n")
    (folder / f"{name}.md").write_text(text)
    return folder

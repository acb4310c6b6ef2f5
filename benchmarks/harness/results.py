"""How the benchmarks of this folder keep what they measured: JSON for programs, markdown for people.

Each result carries the command and the state of the machine; a number without them cannot be measured again.
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

import host
import numpy as np
import psutil

from paceline.measure.machine import system_info

RESULTS = Path(__file__).parent / "results"
SOURCE = Path(__file__).parents[1] / "src"
LOGS = Path(__file__).parent / ".logs"
"""For what is worth a look and nothing more; git does not see it."""
BUSY_PERCENT = 15.0
"""Share of all cores that others may take; numbers measured beside more are printed but not kept."""


Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Calm:
    """How busy the machine is while the benchmark does nothing."""

    load: float
    """Load average of the last minute; an earlier benchmark may still show in it."""
    percent: float
    """Of all cores, over two seconds."""
    slow_percent: float
    """Of their time, in which cores were slow though nobody here used them."""

    @classmethod
    def now(cls) -> Calm:
        """Look for some seconds."""
        return cls(round(os.getloadavg()[0], 2), psutil.cpu_percent(interval=2.0), host.slow_percent())


def conditions(before: Calm) -> dict[str, Any]:
    """Command, machine, and what else was running before and after.

    Args:
        before: Taken when the benchmark began.
    """
    info, after = system_info(), Calm.now()
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "load": [before.load, after.load],
        "busy_percent": [before.percent, after.percent],
        "slow_percent": [before.slow_percent, after.slow_percent],
        "quiet": max(before.percent, after.percent) < BUSY_PERCENT,
        "cpu": info["cpu"],
        "cores": len(info["cores"]["affinity"]),
        "python": info["python"],
        "versions": info["versions"],
    }


def _commit() -> str | None:
    """What was measured: the newest commit of the source, with a plus where it was changed since. None without git."""

    def git(*words: str) -> str:
        told = subprocess.run(
            ["git", *words, "--", str(SOURCE)], cwd=SOURCE, capture_output=True, text=True, check=False
        )
        return told.stdout.strip()

    newest = git("log", "-1", "--format=%h")
    return f"{newest}+" if newest and git("status", "--porcelain") else newest or None


def others(machine: Mapping[str, Any]) -> str:
    """What was taken by other programs, and by neighbours on the host."""
    busy, busy_after = machine["busy_percent"]
    text = f"others took {busy:.0f} % of the cores before, {busy_after:.0f} % after"
    if slow := machine.get("slow_percent"):  # older results do not know
        text += f"; neighbours on the host made them slow for {slow[0]:.0f} % of the time before, {slow[1]:.0f} % after"
    return f"{text}."


def median_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and half the range between the quartiles."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float((high - low) / 2)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; columns after the first are numbers."""
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def add_size_flags(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    """`--rounds` and `--quick`, the same for all that measure in turns."""
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each; medians are reported")
    parser.add_argument("--quick", action="store_true", help="see that it runs: tiny sizes, nothing kept")


def in_turns(cells: Mapping[Key, Callable[[], float]], rounds: int) -> dict[Key, list[float]]:
    """Call every cell once a round, there and back again, so that a machine that drifts favours nobody."""
    found: dict[Key, list[float]] = {key: [] for key in cells}
    for number in range(rounds):
        for key in list(cells)[:: -1 if number % 2 else 1]:
            found[key].append(cells[key]())
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Median of `above / below` round by round, and its spread."""
    return median_spread([one / other for one, other in zip(above, below, strict=True)])


def shown(value: float, spread: float) -> str:
    """A ratio as people read it."""
    return f"{value:.2f} ± {spread:.2f}"


def publish(
    name: str, title: str, body: str, result: Mapping[str, Any], machine: Mapping[str, Any], *, keep: bool = True
) -> Path:
    """Print the result; write `<name>.json` and `.md`.

    Args:
        name: Of the files, and of the figures in the docs.
        title: Heading of the page.
        body: Markdown; the JSON has it too, as `fragment`, from where `figures.py` takes it into the docs.
        result: All that was measured.
        machine: What `conditions` gave.
        keep: False for a run that only tries the program.

    Returns:
        The folder written to: results/, or .logs/ if other programs were running or nothing is to be kept.
    """
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items() if version)
    load, load_after = machine["load"]
    text = (
        f"# {title}\n\n{body}\n\n"
        f"`{machine['command']}`\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, {versions}. "
        f"Load average before {load:.2f}, after {load_after:.2f}; "
        f"{others(machine)}\n"
    )
    print(text)
    folder = RESULTS if keep and machine["quiet"] else LOGS
    if not machine["quiet"]:
        print(f"Other programs took more than {BUSY_PERCENT:.0f} % of the cores. Measure again, alone.")
    if folder is LOGS:
        print(f"Not kept; for a look: {folder.name}/{name}.md")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({**result, "fragment": body, "machine": machine}, indent=2) + "\n")
    (folder / f"{name}.md").write_text(text)
    return folder

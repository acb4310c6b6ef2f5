"""How the benchmarks of this folder keep what they measured: JSON for programs, markdown for people.

Each result carries the command and the state of the machine; a number without them cannot be measured again.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from paceline.measure.system import system_info

RESULTS = Path(__file__).parent / "results"
BUSY_PERCENT = 15.0
"""Share of all cores that others may take; numbers measured beside more are printed but not kept."""


@dataclass(frozen=True, slots=True)
class Calm:
    """How busy the machine is while the benchmark does nothing."""

    load: float
    """Load average of the last minute; an earlier benchmark may still show in it."""
    percent: float
    """Of all cores, over two seconds."""

    @classmethod
    def now(cls) -> Calm:
        """Look for two seconds."""
        return cls(round(os.getloadavg()[0], 2), psutil.cpu_percent(interval=2.0))


def conditions(before: Calm) -> dict[str, Any]:
    """Command, machine, and what else was running before and after.

    Args:
        before: Taken when the benchmark began.
    """
    info, after = system_info(), Calm.now()
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "load": [before.load, after.load],
        "busy_percent": [before.percent, after.percent],
        "quiet": max(before.percent, after.percent) < BUSY_PERCENT,
        "cpu": info["cpu"],
        "cores": len(info["cores"]["affinity"]),
        "python": info["python"],
        "versions": info["versions"],
    }


def median_spread(values: Sequence[float]) -> tuple[float, float]:
    """The median, and half the range between the quartiles."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float(middle), float((high - low) / 2)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; columns after the first are numbers."""
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def publish(name: str, title: str, body: str, result: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
    """Print the result; write `results/<name>.json` and `.md` unless other programs were running."""
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items() if version)
    (load, load_after), (busy, busy_after) = machine["load"], machine["busy_percent"]
    text = (
        f"# {title}\n\n{body}\n\n"
        f"`{machine['command']}`\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, {versions}. "
        f"Load average before {load:.2f}, after {load_after:.2f}; "
        f"others took {busy:.0f} % of the cores before, {busy_after:.0f} % after.\n"
    )
    print(text)
    if not machine["quiet"]:
        print(f"Not kept: other programs took more than {BUSY_PERCENT:.0f} % of the cores. Measure again, alone.")
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({**result, "machine": machine}, indent=2) + "\n")
    (RESULTS / f"{name}.md").write_text(text)

"""`paceline ls [FOLDER]`: list the runs under a folder with their state, steps and score."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from paceline.config.arguments import parse_arguments
from paceline.errors import ConfigError
from paceline.insight.runs.listing import Listed, find_runs, listed
from paceline.measure.panel import number
from paceline.measure.table import print_table

DEFAULT = "runs"
COLUMNS = ("run", "state", "algo", "env", "workers", "steps", "score", "steps/s", "age")
STYLES = {"running": "cyan", "finished": "green", "unfinished": "yellow", "damaged": "red"}


def run(argv: Sequence[str]) -> int:
    """Print one line per run. Does not import torch."""
    parser = argparse.ArgumentParser(
        prog="paceline ls",
        description="List the runs under a folder. The score is the mean return of the last evaluation; without one, "
        "of the last 100 training episodes (marked ~).",
        allow_abbrev=False,
    )
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help=f"folder to search for runs (default: {DEFAULT})")
    given = parse_arguments(parser, argv)
    folder = Path(given.folder or DEFAULT)
    if given.folder is not None and not folder.is_dir():
        raise ConfigError(f"ls {str(folder)!r}: no such folder. Give a folder with runs in it, such as {DEFAULT}/.")
    console = Console(highlight=False)
    runs = [listed(path) for path in find_runs(folder)]
    if not runs:
        console.print(f"no runs under {folder}/. Start one: paceline train ppo --env CartPole-v1", markup=False)
        return 0
    print_table(console, COLUMNS, [_cells(one) for one in runs], left=COLUMNS[:4])
    return 0


def _cells(one: Listed) -> list[str | Text]:
    state = f"{one.state} ({one.remark})" if one.remark and one.state in ("unfinished", "damaged") else one.state
    return [
        str(one.path),
        Text(state, style=STYLES[one.state]),
        one.algo or "-",
        one.env or "-",
        "-" if one.num_workers is None else str(one.num_workers),
        "-" if one.steps is None else f"{one.steps:,}",
        "-" if one.score is None else ("" if one.evaluated else "~") + number(one.score),
        "-" if one.fps is None else f"{one.fps:,.0f}",
        age(one.age_s),
    ]


def age(seconds: float) -> str:
    """Format an age in the largest unit that fits: 45 s, 12 min, 3 h, 2 days."""
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length * (2 if unit == "days" else 1):
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"

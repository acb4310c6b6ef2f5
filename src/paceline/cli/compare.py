"""`paceline compare A B [C...]`: runs side by side, against the first."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from paceline.errors import ConfigError, nearest
from paceline.measure.compare import compare
from paceline.measure.results import read_run

FLAGS = ("--sequential", "--parallel", "--help")


def run(argv: Sequence[str]) -> int:
    """Print the table, the verdict and what makes the runs differ; needs no torch."""
    parser = argparse.ArgumentParser(
        prog="paceline compare",
        description="Put runs side by side. Speed-up and efficiency are against the first.",
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders, the one to compare with first")
    parser.add_argument("--sequential", metavar="RUN", help="the run to compare with (the same as naming it first)")
    parser.add_argument("--parallel", metavar="RUN", action="append", help="a run to compare (the same as naming it)")
    given, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise ConfigError(f"compare {unknown[0]}: no such flag. {nearest(unknown[0].split('=')[0], FLAGS)}")
    folders = [*([given.sequential] if given.sequential else []), *given.runs, *(given.parallel or [])]
    if len(folders) < 2:
        raise ConfigError(
            f"compare: needs at least two run folders, not {len(folders)}. "
            "Write `paceline compare runs/A runs/B`, or --sequential runs/A --parallel runs/B."
        )
    result = compare([read_run(folder) for folder in folders])
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(result.as_table())
        console.print(f"\n{result.verdict}", style="bold", markup=False)
        for remark in result.remarks:
            console.print(f"note: {remark}", style="yellow", markup=False)
    else:
        console.print(result.as_text(), end="", markup=False, soft_wrap=True)
    return 0

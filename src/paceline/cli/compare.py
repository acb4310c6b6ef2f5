"""`paceline compare A B [C ...]`: compare runs with the first one; prints a table, writes PNG, HTML page and report.

Runs that are listed without a flag and differ only in their seed become one side.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from paceline.config.arguments import parse_arguments
from paceline.config.coerce import coerce
from paceline.errors import ConfigError
from paceline.insight.runs.compare import Comparison, compare, interval_note
from paceline.insight.runs.page import make_page
from paceline.insight.runs.picture import make_picture
from paceline.insight.runs.plots import draw_png
from paceline.insight.runs.report import make_report, title_of
from paceline.insight.runs.results import read_run
from paceline.insight.runs.seeds import group_by_seed
from paceline.insight.runs.sides import make_sides
from paceline.measure.folder import require_writable, write_output

PICTURE, REPORT, PAGE = "comparison.png", "comparison_report.txt", "comparison.html"


def run(argv: Sequence[str]) -> int:
    """Print the table and the verdict; write the PNG, the page and the report. Does not import torch."""
    given = _parse(argv)
    groups: list[tuple[str | None, list[str]]] = [("sequential", folders) for folders in given.sequential or []]
    groups += [(None, [folder]) for folder in given.runs]
    groups += [("parallel", folders) for folders in given.parallel or []]
    if len(groups) < 2:
        raise ConfigError(
            f"compare: needs at least two run folders, not {len(groups)}. "
            "Write `paceline compare runs/A runs/B`, or --sequential runs/A --parallel runs/B."
        )
    runs = [(name, [read_run(folder) for folder in folders]) for name, folders in groups]
    if not (given.sequential or given.parallel):
        runs = group_by_seed([run for _, (run,) in runs])
    score: float | None = None if given.score is None else coerce(given.score, float, "score")
    result = compare(make_sides(runs), score=score)
    _print(result)
    for path in write_files(result, Path(given.output_dir)):
        Console(highlight=False).print(f"written: {path}", markup=False, soft_wrap=True)
    return 0


def write_files(result: Comparison, folder: Path) -> tuple[Path, ...]:
    """Write the PNG, the report and the page into a folder, which is created if it is missing.

    Raises:
        ConfigError: The folder cannot be written to.
    """
    picture = make_picture(result)
    contents: dict[Path, str | bytes] = {
        folder / PICTURE: draw_png(picture, title_of(result), result.verdict),
        folder / REPORT: make_report(result),
        folder / PAGE: make_page(result, picture),
    }
    require_writable(folder, "output_dir")
    for path, content in contents.items():
        write_output(path, content, "output_dir")
    return tuple(contents)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="paceline compare",
        description="Compare runs. Speed-up and efficiency are relative to the first run. Runs that differ only in "
        "their seed are one side, shown as mean and interval; with --sequential and --parallel you choose the sides. "
        f"Writes {PICTURE}, {PAGE} and {REPORT}.",
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders; the first is the baseline")
    parser.add_argument(
        "--sequential", metavar="RUN", nargs="+", action="append",
        help="baseline: one run, or several with different seeds",
    )  # fmt: skip
    parser.add_argument(
        "--parallel", metavar="RUN", nargs="+", action="append",
        help="run to compare, or several with different seeds; repeat the flag for more sides",
    )  # fmt: skip
    parser.add_argument("--output-dir", metavar="DIR", default=".", help="output folder (default: the current one)")
    parser.add_argument(
        "--score", metavar="X",
        help="report the time until the mean return of the last 100 episodes reaches X (default: the highest that "
        "all runs reached)",
    )  # fmt: skip
    return parse_arguments(parser, argv)


def _print(result: Comparison) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(result.as_table())
        console.print(f"\n{result.verdict}", style="bold", markup=False)
    else:
        console.print(f"{result.as_text()}\n{result.verdict}", markup=False, soft_wrap=True)
    for remark in (*result.remarks, *filter(None, [interval_note(result)])):
        console.print(f"note: {remark}", style="yellow", markup=False, soft_wrap=not console.is_terminal)

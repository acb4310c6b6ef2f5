"""`paceline plot RUN...`: draw the learning curves of runs into one PNG."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from paceline.config.arguments import parse_arguments
from paceline.errors import ConfigError
from paceline.insight.runs.results import read_run
from paceline.measure.folder import write_output

NAME = "learning_curves.png"


def run(argv: Sequence[str]) -> int:
    """Draw the learning curves and print the path of the PNG. Does not import torch."""
    parser = argparse.ArgumentParser(
        prog="paceline plot",
        description="Plot return, speed and the statistics of learning of runs, finished or not, into one PNG.",
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="run folders")
    parser.add_argument(
        "--output", "-o", metavar="FILE", help=f"PNG file to write (default: {NAME}, for a single run in its folder)"
    )
    given = parse_arguments(parser, argv)
    if not given.runs:
        raise ConfigError("plot: needs a run folder. Write `paceline plot runs/A`; `paceline ls` lists them.")
    folders = list(dict.fromkeys(given.runs))
    path = Path(given.output) if given.output else Path(folders[0], NAME) if len(folders) == 1 else Path(NAME)
    if path.suffix.lower() != ".png":
        raise ConfigError(f"plot --output {str(path)!r}: must end with .png.")
    found = [read_run(folder) for folder in folders]
    # Imported only now, because matplotlib takes a second to load.
    from paceline.insight.runs.learning_plot import draw_curves

    write_output(path, draw_curves(found), "plot --output")
    Console(highlight=False).print(str(path), markup=False, soft_wrap=True)
    return 0

"""`paceline verify PATH`: verify checksums of a checkpoint and list its contents. Runs no code from the files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from paceline.config.arguments import parse_arguments


def run(argv: Sequence[str]) -> int:
    """Check every byte; exit code 1 if something is damaged. Does not import torch."""
    parser = argparse.ArgumentParser(
        prog="paceline verify",
        description="Check SHA-256, format and array shapes of a checkpoint, a saved model, or all of those in a run, "
        "and list their contents. Runs no code from the files. Exit code 1 if one is damaged.",
        allow_abbrev=False,
    )
    parser.add_argument("path", metavar="PATH", help="a checkpoint, a saved model, or a run folder")
    parser.add_argument("--quiet", action="store_true", help="one line per checkpoint, without its contents")
    given = parse_arguments(parser, argv)
    from paceline.insight.verify import earlier_good, verify

    path, console = Path(given.path), Console(highlight=False, soft_wrap=True)
    verdicts = verify(path)
    for one in verdicts:
        if one.good:
            console.print(f"[green]good[/]     {one.path}")
        else:
            console.print("[red]damaged[/]  ", end="")
            console.print(one.error, markup=False)
        for line in () if given.quiet else one.contents:
            console.print(f"         {line}", markup=False)
    undamaged = [one.path for one in verdicts if one.good]
    if len(undamaged) == len(verdicts):
        return 0
    good = undamaged[0] if undamaged else earlier_good(path)
    rest = f"The newest undamaged one is {good}" if good else "There is no good one beside it"
    console.print(f"{len(verdicts) - len(undamaged)} of {len(verdicts)} damaged. {rest}.", markup=False)
    return 1

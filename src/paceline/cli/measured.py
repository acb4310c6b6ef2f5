"""Helpers of `bench` and `tune`: progress messages on stderr and the JSON file with the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from paceline.measure.folder import to_json, write_output


def progress_printer(command: str) -> Callable[[str], None]:
    """Return a function that prints a progress message of a command to stderr."""
    console = Console(stderr=True, highlight=False)
    return lambda text: console.print(f"{command}: {text}", style="dim")


def write_result(outcome: dict[str, Any], path: Path | None) -> None:
    """Write the result to a JSON file, creating its folder. Does nothing without a path."""
    if path is not None:
        write_output(path, to_json(outcome), "json")

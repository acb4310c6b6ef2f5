"""What `bench` and `tune` have in common: notes while they measure, and the file with the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console


def ticker(command: str) -> Callable[[str], None]:
    """Says on stderr what a command is doing."""
    notes = Console(stderr=True, highlight=False)
    return lambda text: notes.print(f"{command}: {text}", style="dim")


def keep(outcome: dict[str, Any], path: Path | None) -> None:
    """Write the result, where a file was asked for."""
    # Only now: numpy takes longer to load than the command line does.
    from paceline.measure.folder import to_json, write_atomic

    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, to_json(outcome))

"""The CSV files of a run as columns of numbers, however the run ended.

A run that goes on, or was killed, may leave half a line at the end: it is not read. Any other
damage is an error that names file and line, so that no number is taken from a broken file.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.errors import ConfigError

Columns = Mapping[str, NDArray[np.float64]]
"""Arrays of one length by column name; NaN where a cell is empty."""


def read_columns(path: Path, header: Sequence[str]) -> Columns:
    """Read a CSV file of numbers.

    Args:
        path: The file.
        header: Names that its first line has to begin with.

    Raises:
        ConfigError: The file cannot be read or is damaged; file and line are named.
    """
    text = read_text(path)
    lines = text[: text.rfind("\n") + 1].splitlines()
    names = lines[0].split(",") if lines else []
    if names[: len(header)] != list(header):
        raise ConfigError(f"{path}: damaged, its first line names no columns of a run. Compare another run.")
    values = array("d")
    for number, line in enumerate(lines[1:], start=2):
        cells = line.split(",")
        try:
            row = [float(cell) if cell else math.nan for cell in cells]
        except ValueError:
            row = []
        if len(row) != len(names) or any(math.isnan(row[i]) for i in range(len(header))):
            raise ConfigError(f"{path}, line {number}: damaged, not a row of numbers. Remove the line.")
        values.extend(row)
    table = np.frombuffer(values, dtype=np.float64).reshape(-1, len(names)) if values else np.empty((0, len(names)))
    return {name: table[:, i].copy() for i, name in enumerate(names)}


def read_text(path: Path) -> str:
    """The text of a file of a run.

    Raises:
        ConfigError: It cannot be read, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"{path}: cannot be read ({reason}). Compare another run.") from None


def known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The numbers of a column without its empty cells."""
    return values[np.isfinite(values)]

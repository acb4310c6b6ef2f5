"""Reads the CSV files of a run into numpy columns, also while the run is writing them or after it was killed.

An incomplete last line is ignored. Any other damage raises an error that names file and line. YAML and JSON files have
only optional values, so a damaged one is read as an empty mapping.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml
from numpy.typing import NDArray

from paceline.errors import ConfigError
from paceline.measure.record import EARLIER_TAGS

_T = TypeVar("_T")

Columns = Mapping[str, NDArray[np.float64]]
"""Arrays of one length by column name; NaN where a cell is empty."""


def read_columns(path: Path, header: Sequence[str]) -> Columns:
    """Read a CSV file of numbers. Tags of earlier versions get their present names.

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
        raise ConfigError(f"{path}: damaged, the first line is not the header of a run. Compare another run.")
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
    return {EARLIER_TAGS.get(name, name): table[:, i].copy() for i, name in enumerate(names)}


def read_text(path: Path) -> str:
    """Read a text file of a run.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"{path}: cannot be read ({reason}). Compare another run.") from None


def read_mapping(path: Path) -> Mapping[str, Any]:
    """Read a mapping from a YAML or JSON file; empty if it is missing or unreadable (all its values are optional)."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def section_of(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of config.yaml; empty if it is missing."""
    section = config.get(name)
    return section if isinstance(section, dict) else {}


def typed(kind: type[_T], value: Any) -> _T | None:
    """The value if it has the type, else None. A bool is no int."""
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def training_seconds(columns: Columns) -> NDArray[np.float64]:
    """The training time up to each row of progress.csv: the seconds that steps/s counts.

    In rows of earlier versions, which did not record it, the wall time without evaluations.
    """
    elapsed = np.nan_to_num(columns["time/time_elapsed"])
    evaluations = np.cumsum(np.nan_to_num(columns["time/eval_s"])) if "time/eval_s" in columns else 0.0
    recorded = columns.get("time/training_s", np.full_like(elapsed, math.nan))
    return np.where(np.isfinite(recorded), recorded, elapsed - evaluations)


def known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The finite values of a column, without empty cells."""
    return values[np.isfinite(values)]

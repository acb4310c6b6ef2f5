"""Reads and writes the trials of a search over workflows: search.csv (one row per trial) and search.json (settings).

Both files are replaced atomically after every trial, so that a search can be stopped and resumed at any time.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from paceline.config.coerce import coerce
from paceline.domains.cyber.workflow import read_workflow
from paceline.errors import ConfigError
from paceline.measure.folder import to_json, write_atomic

CSV, JSON, TEXT, PICTURE = "search.csv", "search.json", "search.txt", "search.png"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """Results of training with one workflow."""

    reward: float
    """Mean return of the evaluation episodes, without the alignment reward: the objective of the search."""
    compliance: float | None
    """Mean compliance of the last 100 training episodes."""
    fixes: float | None
    """Mean number of fixes in the last 100 training episodes."""
    episodes: int
    steps: int
    wall_s: float
    stop_reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial(Trained):
    """One workflow with its predicted and measured results."""

    number: int
    """Trial number, from 1."""
    workflow: str
    expected: float | None
    """Mean that the Gaussian process predicted before the trial; None for initial trials."""
    deviation: float | None
    """Standard deviation of that mean."""
    upper: float | None
    """Upper confidence bound by which the workflow was chosen."""
    folder: str
    """Run folder, relative to the folder of the search."""

    @property
    def complied(self) -> bool:
        """Whether training ended because compliance passed the threshold, before the budget was spent."""
        # Searches of earlier versions have "callback StopAtMeans".
        return self.stop_reason.startswith(("compliance >= ", "callback"))


_TRAINED = tuple(item.name for item in fields(Trained))
_OWN = tuple(item.name for item in fields(Trial) if item.name not in _TRAINED)
COLUMNS = (*_OWN[:-1], *_TRAINED, _OWN[-1])
"""Columns of search.csv: the workflow, its result and its folder."""


def write_trials(folder: Path, trials: Sequence[Trial], about: Mapping[str, Any]) -> None:
    """Replace search.csv and search.json."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = [{name: getattr(trial, name) for name in COLUMNS} for trial in trials]
    writer.writerows(rows)
    write_atomic(folder / CSV, text.getvalue())
    write_atomic(folder / JSON, to_json({**about, "trials": rows}))


def read_trials(folder: Path) -> list[Trial]:
    """Read the trials of search.csv in order; an empty list if the file does not exist.

    Raises:
        ConfigError: The file is damaged.
    """
    path, hints = folder / CSV, get_type_hints(Trial)
    if not path.is_file():
        return []
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        trials = [Trial(**{name: coerce(row[name] or None, hints[name], name) for name in COLUMNS}) for row in rows]
        for trial in trials:
            read_workflow(trial.workflow)
    except (ConfigError, KeyError, OSError, ValueError) as error:
        raise ConfigError(f"{path}: damaged ({error}). Fix the line, or use another folder.") from error
    return trials


def read_about(folder: Path) -> dict[str, Any]:
    """Read search.json; empty if the file does not exist.

    Raises:
        ConfigError: The file is damaged.
    """
    path = folder / JSON
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: damaged ({error}). Use another folder.") from error
    return content

"""Logs a run to Weights & Biases, with the tags of progress.csv. Needs the extra `wandb`."""

from __future__ import annotations

import importlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError, MissingExtra
from paceline.measure.folder import TRACKING_ID, RunFolder, to_json
from paceline.measure.record import EvaluationRow, Iteration, Summary

PROJECT = "paceline"
"""Project of the runs if WANDB_PROJECT is not set."""


def require_wandb() -> Any:
    """Import and return the wandb package.

    Raises:
        MissingExtra: wandb is not installed.
    """
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise MissingExtra("--track (Weights & Biases)", "wandb") from error


class Tracking:
    """One run of Weights & Biases. A resumed run continues the same one.

    Args:
        config: The whole config, as nested plain values.
        folder: The run's folder, whose name becomes the run's name and which stores the run's id. None for neither.

    Raises:
        MissingExtra: wandb is not installed.
        ConfigError: wandb could not start.
    """

    def __init__(self, config: Mapping[str, Any], folder: RunFolder | None = None) -> None:
        wandb = require_wandb()
        identity = uuid.uuid4().hex[:12] if folder is None else _identity(folder)
        try:
            self._run: Any = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=None if folder is None else folder.path.resolve().name,
                id=identity,
                resume="allow",
                dir=None if folder is None else str(folder),
                config=dict(config),
            )
        except Exception as error:  # its exceptions differ between versions
            raise ConfigError(
                f"--track: wandb could not start ({type(error).__name__}: {error}). "
                "Log in with `wandb login`, set WANDB_MODE=offline, or leave out --track."
            ) from error

    def __call__(self, iteration: Iteration) -> None:
        """Log one iteration. wandb sends it in a process of its own."""
        self._run.log(iteration.scalars(), step=iteration.steps)

    def evaluated(self, steps: int, evaluation: EvaluationRow) -> None:
        """Log an evaluation that was made after the last iteration."""
        self._run.log(evaluation.scalars(), step=steps)

    def sum_up(self, summary: Summary) -> None:
        """Store the summary of the run."""
        self._run.summary.update(json.loads(to_json(summary)))

    def close(self) -> None:
        """Send the remaining data and end the run."""
        self._run.finish()


def _identity(folder: RunFolder) -> str:
    """Return the id stored in the run's folder; stores a new one if there is none."""
    path: Path = folder / TRACKING_ID
    if not path.is_file():
        folder.write(TRACKING_ID, uuid.uuid4().hex[:12] + "\n")
    return path.read_text(encoding="utf-8").strip()

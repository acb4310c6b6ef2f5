"""Writes the files of a run. A failed write is a note first, and an error if the file is still missing at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.errors import NotSaved
from paceline.measure.folder import BEST_MODEL, SUMMARY, RunFolder
from paceline.measure.record import RunRecord, Summary
from paceline.train import checkpoint

CHECKPOINT = "the last checkpoint"
"""What the error calls it."""


class Saving:
    """Writes checkpoints, the best model and the summary, and knows which of them could not be written.

    Args:
        note: Shows a line to the user.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._failed: dict[str, str] = {}  # reason by file, for files whose last write failed

    def snapshot(self, path: Path, arrays: checkpoint.State, meta: Mapping[str, Any]) -> Path | None:
        """Write a checkpoint or the best model; returns its path, or None if it could not be written."""
        file = BEST_MODEL if path.name == BEST_MODEL else CHECKPOINT
        try:
            checkpoint.save(path, arrays, meta)
        except OSError as error:
            self._failed[file] = error.strerror or str(error)
            self._note(f"{path}: not saved ({self._failed[file]}). The run continues; the previous one is kept")
            return None
        self._failed.pop(file, None)
        return path

    def summary(self, folder: RunFolder, summary: Summary) -> None:
        """Write summary.json."""
        try:
            folder.write_json(SUMMARY, summary)
        except OSError as error:
            self._failed[SUMMARY] = error.strerror or str(error)
            self._note(f"{folder / SUMMARY}: not written ({self._failed[SUMMARY]})")

    def require_all(self, steps: int, record: RunRecord | None, resume: str | None) -> None:
        """Check at the end of a run that everything is on disk.

        Args:
            steps: Steps of the run.
            record: Its tables.
            resume: The command that resumes it; None if it has no checkpoint.

        Raises:
            NotSaved: A file could not be written, and no later attempt succeeded.
        """
        rows = [] if record is None else record.unwritten()
        lost = [*self._failed, *(f"the last rows of {name}" for name in rows)]
        if not lost:
            return
        reasons = "; ".join(dict.fromkeys(self._failed.values()))
        ended = (
            f"the run ended at step {steps:,}, but these could not be written: {', '.join(lost)}"
            f"{f' ({reasons})' if reasons else ''}. Free disk space."
        )
        if CHECKPOINT in self._failed and resume is not None:
            ended += f" To train on from the newest checkpoint:\n  {resume}"
        raise NotSaved(ended)

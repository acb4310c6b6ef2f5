"""Untyped access to the parts of a run, for tests that replace methods or read private attributes."""

from __future__ import annotations

from typing import Any

from paceline.train.run import Run


def inside(run: Run) -> Any:
    """The training of a run."""
    return run.training

"""The definition of steps/s: env steps of a run, divided by its training time.

    wall time from the first step on   |--------------------------------------------------|
    training time                      |-------------------|      |---------------|       |
    evaluations and checkpoints                            |------|               |-------|

Everything else counts: learning, waiting, callbacks, the log, and the rest of the loop (`other`). Start-up comes before
the first step and counts for neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

APART = ("eval", "checkpoint")
"""Phases that are not training time."""


def training_s(wall_s: float, phases: Mapping[str, float]) -> float:
    """Return the training time: the seconds that steps/s counts.

    Args:
        wall_s: Wall-clock seconds from the first step on.
        phases: Seconds by phase within them.
    """
    return max(0.0, wall_s - sum(phases.get(name, 0.0) for name in APART))


def per_second(count: float, seconds: float) -> float:
    """Return `count` per second; 0 if no time has passed."""
    return count / seconds if seconds > 0 else 0.0


def with_other(phases: Mapping[str, float], wall_s: float) -> dict[str, float]:
    """Return the phases and `other`, the time in none of them: together they add up to `wall_s`."""
    return {**phases, "other": max(0.0, wall_s - sum(phases.values()))}


def fps_of(summary: Mapping[str, Any]) -> float:
    """Return steps/s of a summary.json. Earlier versions divided by less than the training time: corrected here."""
    phases = summary.get("phases")
    if "training_s" in summary or not phases:
        return float(summary["fps"])
    return per_second(summary["steps"], training_s(summary["wall_s"], phases))

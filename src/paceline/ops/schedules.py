"""Schedules: how a setting changes over the budget. To add one, add it here and to the `Schedule` of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda progress: 1.0,  # noqa: ARG005 - the same at any progress
    "linear": lambda progress: 1.0 - progress,
}
"""By name: the factor of the initial value after the fraction `progress` (0 to 1) of the budget."""


def scheduled(initial: float, schedule: str, progress: float) -> float:
    """The value of a setting at `progress`.

    Raises:
        KeyError: There is no such schedule.
    """
    return initial * SCHEDULES[schedule](progress)

"""Budgets: the first one spent ends the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.measure.clock import Clock
from paceline.train.budget import RunBudget


def budget(steps: int = 0, episodes: int = 0, seconds: float = 0.0, **limits: Any) -> RunBudget:
    now = [100.0]
    clock = Clock(now=lambda: now[0])
    now[0] += seconds
    tracker: Any = SimpleNamespace(steps=steps, episodes=episodes)
    return RunBudget(tracker, clock, **limits)


@pytest.mark.parametrize(
    ("limits", "before", "after"),
    [
        ({"total_timesteps": 1000}, {"steps": 999}, {"steps": 1000}),
        ({"total_episodes": 10}, {"episodes": 9}, {"episodes": 12}),
        ({"duration_s": 60.0}, {"seconds": 59.9}, {"seconds": 60.0}),
    ],
)
def test_each_budget_ends_the_run_when_it_is_spent(
    limits: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    early, late = budget(**before, **limits), budget(**after, **limits)
    assert not early.spent()
    assert early.stop_reason is None
    assert early.progress() == pytest.approx(next(iter(before.values())) / next(iter(limits.values())))
    assert late.spent()
    assert late.stop_reason == next(iter(limits)).removesuffix("_s")
    assert late.progress() == 1.0


def test_progress_is_that_of_the_budget_nearest_to_its_end() -> None:
    both = budget(steps=100, seconds=50.0, total_timesteps=1000, duration_s=100.0)
    assert both.progress() == 0.5
    assert not both.spent()
    done = budget(steps=100, seconds=101.0, total_timesteps=1000, duration_s=100.0)
    assert done.spent()
    assert done.stop_reason == "duration"


def test_a_request_ends_the_run_and_the_first_reason_stays() -> None:
    free = budget(steps=10**9)
    assert not free.spent()
    assert free.progress() == 0.0
    free.stop("SIGINT")
    free.stop("SIGTERM")
    assert free.spent()
    assert free.stop_reason == "SIGINT"

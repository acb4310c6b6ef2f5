"""Budgets: the first one spent ends the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.measure.clock import Clock
from paceline.measure.record import Goal
from paceline.train.budget import RunBudget


def budget(goal: Goal, steps: int = 0, episodes: int = 0, seconds: float = 0.0) -> RunBudget:
    now = [100.0]
    clock = Clock(now=lambda: now[0])
    now[0] += seconds
    tracker: Any = SimpleNamespace(steps=steps, episodes=episodes)
    return RunBudget(tracker, clock, goal)


@pytest.mark.parametrize(
    ("name", "limit", "before", "after", "reason"),
    [
        ("steps", 1000, 999, 1000, "total_timesteps"),
        ("episodes", 10, 9, 12, "total_episodes"),
        ("seconds", 60.0, 59.9, 60.0, "duration"),
    ],
)
def test_each_budget_ends_the_run_when_it_is_spent(
    name: str, limit: float, before: float, after: float, reason: str
) -> None:
    goal = Goal(**{name: limit})  # type: ignore[arg-type]
    early, late = budget(goal, **{name: before}), budget(goal, **{name: after})  # type: ignore[arg-type]
    assert not early.spent()
    assert early.stop_reason is None
    assert early.progress() == pytest.approx(before / limit)
    assert late.spent()
    assert late.stop_reason == reason
    assert late.progress() == 1.0


def test_progress_is_that_of_the_budget_nearest_to_its_end() -> None:
    goal = Goal(steps=1000, seconds=100.0)
    both = budget(goal, steps=100, seconds=50.0)
    assert both.progress() == 0.5
    assert not both.spent()
    done = budget(goal, steps=100, seconds=101.0)
    assert done.spent()
    assert done.stop_reason == "duration"


def test_a_request_ends_the_run_and_the_first_reason_stays() -> None:
    free = budget(Goal(), steps=10**9)
    assert not free.spent()
    assert free.progress() == 0.0
    free.stop("SIGINT")
    free.stop("SIGTERM")
    assert free.spent()
    assert free.stop_reason == "SIGINT"

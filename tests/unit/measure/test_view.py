"""Rates, shares and remaining time for the display."""

from __future__ import annotations

import pytest
from tests.unit.measure.iterations import drawn, iteration, view

from paceline.measure.record import Goal
from paceline.measure.view import phase_shares


def test_rates_are_of_the_recent_iterations() -> None:
    one = view(iteration(1, iteration_s=1.0), iteration(2))
    assert one.fps == pytest.approx(2000 / 1.5)
    assert one.episodes_per_s == pytest.approx(20 / 1.5)
    assert view().fps is None
    apart = view(iteration(1, iteration_s=1.0, phases={"learn": 0.5, "eval": 0.3, "checkpoint": 0.2}))
    assert apart.fps == pytest.approx(2000.0)
    assert apart.episodes_per_s == pytest.approx(20.0)
    assert apart.left_s == pytest.approx(9.0), "the rest of the run has evaluations too"


def test_remaining_time_is_that_of_the_budget_that_ends_first() -> None:
    now = iteration(4)  # 4,000 steps and 40 episodes at 2,000 steps/s and 20 episodes/s, after 2 s
    assert view(now, goal=Goal(steps=10_000)).left_s == pytest.approx(3.0)
    assert view(now, goal=Goal(episodes=50)).left_s == pytest.approx(0.5)
    assert view(now, goal=Goal(seconds=60.0)).left_s == pytest.approx(58.0)
    assert view(now, goal=Goal(steps=10_000, seconds=60.0)).left_s == pytest.approx(3.0)
    assert view(now, goal=Goal(steps=10_000), since_s=1.0).left_s == pytest.approx(2.0)
    assert view(now, goal=Goal(steps=10_000), since_s=9.0).left_s == 0.0
    assert view(goal=Goal(steps=10_000)).left_s is None
    assert view(now, goal=Goal()).left_s is None


def test_fraction_is_of_the_budget_that_ends_first() -> None:
    now = iteration(4)
    assert view(now, goal=Goal(steps=10_000, episodes=50)).fraction == pytest.approx(0.8)
    assert view(now, goal=Goal(steps=1_000)).fraction == 1.0
    assert view(now, goal=Goal()).fraction == 0.0
    assert "40 / 50 episodes" in drawn(view(now, goal=Goal(steps=10_000, episodes=50)))


def test_shares_add_up_to_one_with_the_rest_named() -> None:
    shares = phase_shares([{"collect": 1.0, "learn": 0.5}, {"collect": 1.0, "save": 0.5}], 4.0)
    assert shares == {"collect": 0.5, "learn": 0.125, "save": 0.125, "other": 0.25}
    assert sum(phase_shares([{"collect": 3.0}], 2.0).values()) == pytest.approx(1.0)
    assert phase_shares([], 0.0) == {}

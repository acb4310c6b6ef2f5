"""Schedules of settings over the budget."""

from __future__ import annotations

from typing import get_args

import pytest

from paceline.config.algorithm_settings import Schedule
from paceline.ops.schedules import SCHEDULES, scheduled


def test_every_schedule_that_settings_accept_exists_and_starts_at_the_initial_value() -> None:
    assert set(get_args(Schedule)) == set(SCHEDULES)
    assert [scheduled(3e-4, name, 0.0) for name in SCHEDULES] == [3e-4] * len(SCHEDULES)


def test_linear_ends_at_zero() -> None:
    assert scheduled(2.0, "linear", 0.25) == 1.5
    assert scheduled(2.0, "linear", 1.0) == 0.0


def test_constant_stays() -> None:
    assert scheduled(2.0, "constant", 1.0) == 2.0


def test_an_unknown_schedule_is_an_error() -> None:
    with pytest.raises(KeyError):
        scheduled(1.0, "cosine", 0.5)

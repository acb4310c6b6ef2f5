"""Schedules of settings over the budget: named ones, and functions of the user's."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from paceline.config.algorithm_settings import Schedule
from paceline.errors import ConfigError
from paceline.ops.schedules import SCHEDULES, value_at


def falling(left: float) -> float:
    return 0.5 * left


NOT_A_FUNCTION = 3


def value(setting: Any, schedule: str = "constant", progress: float = 0.0) -> float:
    return value_at("learning_rate", setting, schedule)(progress)


def test_every_schedule_that_settings_accept_exists_and_starts_at_the_initial_value() -> None:
    assert set(get_args(Schedule)) == set(SCHEDULES)
    assert [value(3e-4, name) for name in SCHEDULES] == [3e-4] * len(SCHEDULES)


def test_linear_and_cosine_end_at_zero() -> None:
    assert value(2.0, "linear", 0.25) == 1.5
    assert value(2.0, "linear", 1.0) == 0.0
    assert value(2.0, "cosine", 0.5) == pytest.approx(1.0)
    assert value(2.0, "cosine", 0.25) == pytest.approx(1.0 + math.sqrt(0.5))
    assert value(2.0, "cosine", 1.0) == 0.0


def test_constant_stays() -> None:
    assert value(2.0, "constant", 1.0) == 2.0
    assert value(math.inf, "constant", 1.0) == math.inf


@pytest.mark.parametrize("setting", [falling, f"{__name__}:falling", lambda left: falling(left)])
def test_a_function_gets_the_remaining_progress_and_gives_the_value(setting: Any) -> None:
    assert [value(setting, progress=progress) for progress in (0.0, 0.5, 1.0)] == [0.5, 0.25, 0.0]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (lambda: 1.0, "its function raised TypeError at remaining progress 1"),
        (lambda left: "high", "its function raised ValueError"),
        (lambda left: -left, r"must return a finite number from 0 on \(got -1 at remaining progress 1\)"),
        (lambda left: math.nan, "must return a finite number"),
        ("tests.nowhere:falling", r"learning_rate='tests.nowhere:falling': cannot be imported \(ModuleNotFoundError"),
        (f"{__name__}:rising", "cannot be imported"),
        (f"{__name__}:NOT_A_FUNCTION", r"must be a function \(got a int\)"),
        ("<Python object x:f.<locals>.g>", r"is not saved. Pass it again in Python \(learning_rate=...\), or define"),
    ],
)
def test_a_function_that_does_not_work_raises_at_once(setting: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        value_at("learning_rate", setting, "constant")


def test_a_function_that_fails_later_names_the_progress() -> None:
    rate = value_at("learning_rate", lambda left: left - 0.5, "constant")
    with pytest.raises(ConfigError, match=r"got -0.25 at remaining progress 0.25"):
        rate(0.75)

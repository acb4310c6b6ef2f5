"""The definition of steps/s."""

from __future__ import annotations

import pytest

from paceline.measure.speed import fps_of, per_second, training_s, with_other

PHASES = {"learn": 3.0, "callback": 1.0, "eval": 2.0, "checkpoint": 0.5}


def test_training_time_is_all_but_evaluations_and_checkpoints() -> None:
    assert training_s(10.0, PHASES) == 7.5
    assert training_s(10.0, {}) == 10.0
    assert training_s(1.0, {"eval": 1.5}) == 0.0


def test_phases_and_other_add_up_to_the_wall_time() -> None:
    whole = with_other(PHASES, 10.0)
    assert whole == {**PHASES, "other": 3.5}
    assert with_other({"learn": 2.0}, 1.9)["other"] == 0.0


def test_no_time_is_no_speed() -> None:
    assert per_second(10, 4.0) == 2.5
    assert per_second(10, 0.0) == 0.0


def test_a_summary_of_an_earlier_version_is_corrected() -> None:
    old = {"steps": 750, "wall_s": 10.0, "phases": PHASES, "fps": 187.5}  # divided by learn and callback alone
    assert fps_of(old) == pytest.approx(100.0)
    assert fps_of({**old, "training_s": 4.0}) == 187.5
    assert fps_of({**old, "phases": {}}) == 187.5, "nothing to correct it with"

"""What a run is limited by, in words."""

from __future__ import annotations

from paceline.measure.limit import LEAST, limited_by


def test_the_largest_phase_comes_first_and_small_ones_are_left_out() -> None:
    text = limited_by({"env": 0.3, "learn": 0.6, "sync": LEAST / 2, "other": 0.1 - LEAST / 2}, {})
    assert text == "learning (60% of its time; stepping envs 30%, other work 8%)"
    assert limited_by({"learn": 1.0}, {}) == "learning (100% of its time)"
    assert limited_by({}, {"env": 1.0}) == ""


def test_waiting_for_workers_is_what_they_do_unless_they_are_idle() -> None:
    driver = {"wait": 0.9, "sync": 0.1}
    busy = {"env": 0.5, "learn": 0.3, "idle": 0.2}
    assert limited_by(driver, busy) == "stepping envs (50% of its workers' time; learning 30%)"
    assert limited_by(driver, {"env": 0.3, "idle": 0.7}).startswith("waiting for workers (90%")
    assert limited_by({"learn": 0.9, "wait": 0.1}, busy).startswith("learning"), "the driver did not wait"


def test_phases_of_later_versions_keep_their_name() -> None:
    assert limited_by({"dreaming": 1.0}, {}) == "dreaming (100% of its time)"

from __future__ import annotations

import time

import pytest
from tests.calls import calls_of

from paceline.measure.clock import Clock


class Timer:
    """A timer that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def clock(timer: Timer) -> Clock:
    return Clock(timer)


def test_phases_add_up_over_entries(clock: Clock, timer: Timer) -> None:
    for seconds in (1.0, 2.5):
        with clock.phase("collect"):
            timer.now += seconds
        timer.now += 10.0  # in no phase
    assert clock.snapshot().seconds == {"collect": 3.5}
    assert clock.elapsed_s == pytest.approx(23.5)


def test_nested_phase_is_taken_out_of_its_parent(clock: Clock, timer: Timer) -> None:
    with clock.phase("collect"):
        timer.now += 1.0
        with clock.phase("wait"):
            timer.now += 5.0
            with clock.phase("sync"):
                timer.now += 0.25
        timer.now += 2.0
    assert clock.snapshot().seconds == {"collect": 3.0, "wait": 5.0, "sync": 0.25}


def test_phase_nests_in_itself_without_counting_twice(clock: Clock, timer: Timer) -> None:
    with clock.phase("learn"):
        timer.now += 1.0
        with clock.phase("learn"):
            timer.now += 1.0
    assert clock.snapshot().seconds == {"learn": 2.0}


def test_exception_closes_the_phase(clock: Clock, timer: Timer) -> None:
    def fail() -> None:
        timer.now += 1.0
        raise KeyError

    with pytest.raises(KeyError), clock.phase("collect"), clock.phase("env"):
        fail()
    timer.now += 7.0
    assert clock.snapshot().seconds == {"collect": 0.0, "env": 1.0}


def test_snapshot_inside_a_phase_counts_up_to_now(clock: Clock, timer: Timer) -> None:
    with clock.phase("collect"):
        timer.now += 1.0
        assert clock.snapshot().seconds == {"collect": 1.0}
        timer.now += 1.0
    assert clock.snapshot().seconds == {"collect": 2.0}


def test_delta_is_what_came_after_and_names_every_phase(clock: Clock, timer: Timer) -> None:
    with clock.phase("eval"):
        timer.now += 3.0
    before = clock.snapshot()
    with clock.phase("learn"):
        timer.now += 2.0
    delta = clock.snapshot().since(before)
    assert delta.seconds == {"eval": 0.0, "learn": 2.0}
    assert before.seconds == {"eval": 3.0}  # a snapshot does not change


def test_elapsed_seconds_of_a_snapshot_are_of_the_same_moment(clock: Clock, timer: Timer) -> None:
    timer.now += 3.0
    before = clock.snapshot()
    timer.now += 4.0
    assert before.elapsed_s == 3.0
    assert clock.snapshot().since(before).elapsed_s == 4.0


def test_seconds_measured_elsewhere(clock: Clock) -> None:
    clock.add("env", 0.5)
    clock.add("env", 0.5)
    with clock.phase("env"):
        pass
    assert clock.snapshot().seconds == {"env": 1.0}


def test_a_resumed_clock_continues(clock: Clock, timer: Timer) -> None:
    with clock.phase("learn"):
        timer.now += 4.0
    resumed = Clock(timer)
    resumed.load(clock.state())
    with resumed.phase("learn"):
        timer.now += 1.0
    assert resumed.snapshot().seconds == {"learn": 5.0}
    assert resumed.elapsed_s == pytest.approx(5.0)


def test_real_timer_sees_a_sleep() -> None:
    clock = Clock()
    with clock.phase("wait"):
        time.sleep(0.02)
    assert 0.02 <= clock.snapshot().seconds["wait"] < 1.0


def test_an_empty_phase_takes_few_calls_however_long_the_run(clock: Clock) -> None:
    def enter() -> None:
        with clock.phase("null"):
            pass

    def fewest() -> int:
        """Of several: garbage collection may add calls to one."""
        return min(calls_of(enter) for _ in range(5))

    enter()  # the first has to make room for the name
    taken = fewest()
    assert taken <= 15
    for _ in range(100):
        enter()
    assert fewest() == taken

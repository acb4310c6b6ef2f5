"""Timing windows: what is counted, ratios inside rounds, and shares of phases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from paceline.config.train_config import TrainConfig
from paceline.insight import windows
from paceline.insight.windows import PHASES, iterate, phase_shares, ratio, window
from paceline.measure.clock import Clock
from paceline.train.build import build


class FakeTime:
    """A fake `perf_counter`. Each turn advances it by the next of the given durations."""

    def __init__(self, *durations: float) -> None:
        self.now = 0.0
        self._durations: Iterator[float] = iter(durations)

    def __call__(self) -> float:
        return self.now

    def turn(self) -> int:
        self.now += next(self._durations)
        return 10


def test_a_window_lasts_to_the_end_of_its_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime(0.4, 0.4, 0.4, 9.0)
    monkeypatch.setattr(windows, "perf_counter", time)
    assert window(time.turn, 1.0) == pytest.approx(30 / 1.2)


def test_a_window_has_one_turn_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    time = FakeTime(5.0, 5.0)
    monkeypatch.setattr(windows, "perf_counter", time)
    assert window(time.turn, 0.1) == pytest.approx(2.0)


def test_ratios_are_taken_round_by_round() -> None:
    assert ratio([2.0, 40.0, 6.0], [1.0, 20.0, 3.0]) == (2.0, 0.0)
    middle, spread = ratio([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5)
    assert (middle, spread) == (3.0, 1.0)  # quartiles 2 and 4


def test_an_iteration_returns_its_steps() -> None:
    config = TrainConfig.from_flat(env="CartPole-v1", n_envs=4, n_steps=8, num_workers=0)
    with closing(build(config)) as training:
        training.rollouts.reset()
        assert [iterate(training) for _ in range(2)] == [32, 32]
        assert training.tracker.steps == 64


def test_shares_are_of_the_time_since_the_snapshot() -> None:
    clock = Clock()
    with clock.phase("env"):
        pass
    since = clock.snapshot()
    clock.add("env", 1.0)
    clock.add("learn", 3.0)
    shares = phase_shares(clock, since)
    assert list(shares) == list(PHASES)
    assert (shares["env"], shares["learn"], shares["wait"]) == pytest.approx((0.25, 0.75, 0.0))

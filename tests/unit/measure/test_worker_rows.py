from __future__ import annotations

import pytest

from paceline.measure.record import Iteration, WorkerActivity
from paceline.measure.worker_rows import BAR_WIDTH, SHOWN, Activity, activities, rows, stack


def iteration(*workers: WorkerActivity, seconds: float = 1.0) -> Iteration:
    return Iteration(
        iteration=1, steps=1, episodes=0, wall_s=1.0, training_s=1.0, iteration_steps=1, iteration_episodes=0,
        iteration_s=seconds, workers=workers,
    )  # fmt: skip


def test_shares_are_of_the_time_that_has_passed() -> None:
    recent = [
        iteration(WorkerActivity(0.5, 0.1, 50.0, 10.0), WorkerActivity(0.2, 0.0)),
        iteration(WorkerActivity(1.5, 0.3, 70.0, 20.0), WorkerActivity(0.4, 0.0), seconds=3.0),
    ]
    first, second = activities(recent)
    assert (first.env, first.inference, first.idle) == pytest.approx((0.5, 0.1, 0.4))
    assert (first.cpu_percent, first.memory_mb) == (70.0, 20.0)  # the newest look
    assert second.env == pytest.approx(0.15)
    assert second.cpu_percent is None


def test_there_are_no_rows_without_workers_or_iterations() -> None:
    assert activities([]) == []
    assert activities([iteration()]) == []
    assert activities([iteration(WorkerActivity(0.1, 0.1), seconds=0.0)]) == []
    assert rows([]) == []


def test_many_workers_share_the_last_line() -> None:
    many = [Activity(0.5, 0.25, 80.0, 100.0)] * SHOWN + [Activity(0.2, 0.0, 10.0, 40.0), Activity(0.4, 0.2, None, 60.0)]
    lines = rows(many)
    assert [name for name, _ in lines] == [*map(str, range(SHOWN)), f"{SHOWN}-{SHOWN + 1}"]
    last = lines[-1][1].plain
    for part in ("env  30%", "inference  10%", "idle  60%", "10 % cpu", "50 MB", "mean of 2 more"):
        assert part in last
    assert "more" not in lines[0][1].plain


@pytest.mark.parametrize(("env", "inference"), [(0.0, 0.0), (1.0, 0.0), (0.33, 0.33), (0.9, 0.3), (0.499, 0.001)])
def test_all_bars_have_the_same_width(env: float, inference: float) -> None:
    ((_, line),) = rows([Activity(env, inference)])
    assert line.plain.startswith("█" * BAR_WIDTH + "   env")


def test_a_stack_is_exactly_as_wide_as_asked() -> None:
    assert len(stack({"collect": 1 / 3, "learn": 1 / 3, "wait": 1 / 3}, 10).plain) == 10


def test_computing_gradients_is_not_idling() -> None:
    (one,) = activities([iteration(WorkerActivity(0.3, 0.1, learn_s=0.4))])
    assert one.learn == 0.4
    assert round(one.idle, 9) == 0.2
    ((_, line),) = rows([one])
    assert "learn  40%" in line.plain
    assert "idle  20%" in line.plain

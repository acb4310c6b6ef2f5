from __future__ import annotations

import pytest

from paceline.measure.panel import LABEL
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
    assert rows([], 100) == []


def test_many_workers_share_the_last_line() -> None:
    many = [Activity(0.5, 0.25, 80.0, 100.0)] * SHOWN + [Activity(0.2, 0.0, 10.0, 40.0), Activity(0.4, 0.2, None, 60.0)]
    lines = rows(many, 100)
    assert [name for name, _ in lines] == [*map(str, range(SHOWN)), f"{SHOWN}-{SHOWN + 1}"]
    last = lines[-1][1].plain
    for part in ("env  30%", "inference  10%", "idle  60%", "10 % cpu", "50 MB", "mean of 2 more"):
        assert part in last
    assert "more" not in lines[0][1].plain


@pytest.mark.parametrize(("env", "inference"), [(0.0, 0.0), (1.0, 0.0), (0.33, 0.33), (0.9, 0.3), (0.499, 0.001)])
def test_all_bars_have_the_same_width(env: float, inference: float) -> None:
    ((_, line),) = rows([Activity(env, inference)], 100)
    assert line.plain.startswith("█" * BAR_WIDTH + "   env")


def test_a_stack_is_exactly_as_wide_as_asked() -> None:
    assert len(stack({"collect": 1 / 3, "learn": 1 / 3, "wait": 1 / 3}, 10).plain) == 10


def test_computing_gradients_is_not_idling() -> None:
    (one,) = activities([iteration(WorkerActivity(0.3, 0.1, learn_s=0.4))])
    assert one.learn == 0.4
    assert round(one.idle, 9) == 0.2
    ((_, line),) = rows([one], 100)
    assert "learn  40%" in line.plain
    assert "idle  20%" in line.plain


@pytest.mark.parametrize("learn", [0.0, 0.25])
@pytest.mark.parametrize("width", [71, 51, 40])
def test_a_narrow_terminal_keeps_cpu_and_memory(width: int, learn: float) -> None:
    workers = [Activity(0.5, 0.25, 100.0, 12_345.0, learn), Activity(0.0, 1.0, 7.0, 45.0)]
    texts = [line.plain for _, line in rows(workers, width)]
    assert all(len(text) <= width for text in texts), texts
    assert texts[0].endswith(" 100 % cpu  12,345 MB")
    assert texts[1].endswith("   7 % cpu     45 MB")
    assert all("env " in text for text in texts)


def test_at_80_columns_every_share_is_shown_beside_cpu_and_memory_and_the_bar_if_no_worker_learns() -> None:
    at_80 = 80 - LABEL
    ((_, learning),) = rows([Activity(0.5, 0.2, 100.0, 345.0, 0.2)], at_80)
    assert learning.plain == "env  50%  inference  20%  learn  20%  idle  10%   100 % cpu    345 MB"
    ((_, acting),) = rows([Activity(0.5, 0.2, 100.0, 345.0)], at_80)
    assert acting.plain == "███████████   env  50%  inference  20%  idle  30%   100 % cpu    345 MB"

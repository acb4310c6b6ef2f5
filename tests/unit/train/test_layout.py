"""The choice of a worker count, with costs made up and with a real env."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paceline.batch import Trajectory
from paceline.config.train_config import TrainConfig
from paceline.envs.busy import Busy
from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.memory.shared import Arena
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.nets.flat import size_of
from paceline.runtime.protocol import Share
from paceline.system import threads
from paceline.train import layout as layouts
from paceline.train.build import build
from paceline.train.layout import Cost, Layout, candidates, choose, predict
from paceline.train.recipes import env_recipe, policy_recipe
from paceline.train.worker_recipe import WorkerRecipe

COMMON: dict[str, Any] = {
    "groups": 8,
    "group_size": 4,
    "cores": 4,
    "threads_per_worker": 1,
    "learner_threads": 1,
    "start_method": "forkserver",
    "inference": "local",
}
HEAVY = Cost(env_s=4e-3, env_cpu_s=4e-3, inference_s=1e-4, inference_more_s=1e-5)
LIGHT = Cost(env_s=1e-7, env_cpu_s=1e-7, inference_s=1e-4, inference_more_s=1e-8)
SLEEPY = Cost(env_s=4e-3, env_cpu_s=1e-5, inference_s=1e-4, inference_more_s=1e-5)
TOGETHER = replace(SLEEPY, threaded_s=1.1e-3, threaded_more_s=1e-4)
GREEDY = replace(SLEEPY, threaded_s=4e-3, threaded_more_s=4e-3)
"""Holds the interpreter lock while it waits."""


def chosen(
    cost: Cost,
    monkeypatch: pytest.MonkeyPatch,
    *,
    cores: int = 4,
    groups: int = 8,
    rollouts: float | None = 1e6,
    env_threads: int | str = "auto",
) -> Layout:
    monkeypatch.setattr(layouts, "measure", lambda *_: cost)
    monkeypatch.setattr(threads, "core_budget", lambda: cores)
    program: Any = SimpleNamespace(
        shape=SimpleNamespace(n_steps=128, groups=groups, group_size=4), env_threads=env_threads
    )
    common = {**COMMON, "cores": cores, "groups": groups}
    return choose(program, 100, rollouts=rollouts, common=common, timeouts_s=(60.0, 60.0))


def test_rows_add_up() -> None:
    cost = Cost(env_s=3.0, env_cpu_s=1.0, inference_s=0.5, inference_more_s=0.1)
    assert cost.row(1) == pytest.approx(3.5)
    assert cost.row(4) == pytest.approx(12.0 + 0.5 + 0.3)
    assert cost.row_cpu(4) == pytest.approx(4.0 + 0.5 + 0.3), "waiting is no work"


def test_groups_in_one_vector_env_add_less_than_the_first() -> None:
    cost = Cost(env_s=3.0, env_cpu_s=1.5, inference_s=0.5, inference_more_s=0.1, env_more_s=0.2)
    assert cost.row(1) == pytest.approx(3.5)
    assert cost.row(4) == pytest.approx(3.6 + 0.5 + 0.3)
    assert cost.row_cpu(4) == pytest.approx(1.8 + 0.5 + 0.3)


@pytest.mark.parametrize(("env", "measured"), [("paceline/NetworkDefence-v0", True), ("CartPole-v1", False)])
def test_groups_are_measured_together_if_one_vector_env_steps_them(
    env: str, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION_S", 0.01)
    cost = layouts.measure(*program(env=env), timeouts_s=(60.0, 60.0))
    assert (cost.env_more_s is not None) == measured


def test_predictions_follow_the_busiest_worker_and_the_cores() -> None:
    alone = predict(HEAVY, 100, 8, 0, 4)
    assert alone == pytest.approx(100 * HEAVY.row(8))
    assert predict(HEAVY, 100, 8, 4, 4) == pytest.approx(100 * HEAVY.row(2), rel=0.01)
    # 8 groups on 3 workers: one of them has 3.
    assert predict(HEAVY, 100, 8, 3, 4) == pytest.approx(100 * HEAVY.row(3), rel=0.01)
    # 8 busy workers on 2 cores are no faster than 2.
    assert predict(HEAVY, 100, 8, 8, 2) >= 0.95 * predict(HEAVY, 100, 8, 2, 2)
    # 8 sleeping ones are.
    assert predict(SLEEPY, 100, 8, 8, 2) < 0.5 * predict(SLEEPY, 100, 8, 2, 2)


def test_candidates_go_beyond_the_cores_only_where_envs_wait() -> None:
    assert candidates(HEAVY, groups=8, cores=4) == [0, 2, 3, 4]
    assert candidates(HEAVY, groups=3, cores=4) == [0, 2, 3]
    assert candidates(HEAVY, groups=8, cores=1) == [0]
    assert candidates(SLEEPY, groups=8, cores=2) == [0, 2, 3, 4, 5, 6, 7, 8]
    assert max(candidates(SLEEPY, groups=1000, cores=2)) == 64


def test_heavy_envs_get_every_core(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = chosen(HEAVY, monkeypatch)
    assert layout.num_workers == 4
    assert "4 workers" in layout.why
    assert layout.measured is not None
    assert layout.measured["env_s"] == HEAVY.env_s
    assert layout.predicted_rollout_s is not None
    assert set(layout.predicted_rollout_s) == {0, 2, 3, 4}


def test_rows_with_threads_grow_by_the_hand_over_alone() -> None:
    rest = TOGETHER.inference_s + 3 * TOGETHER.inference_more_s
    assert TOGETHER.row(4, env_threads=16) == pytest.approx(1.1e-3 + 3 * 1e-4 + rest)
    assert TOGETHER.row(4, env_threads=1) == SLEEPY.row(4) == SLEEPY.row(4, env_threads=16), "not measured"
    assert TOGETHER.row(4, env_threads=2) == pytest.approx(8e-3 + rest), "two at a time"


@pytest.mark.parametrize(("cost", "asked"), [(SLEEPY, 1), (GREEDY, "auto")], ids=["not wanted", "no help"])
def test_waiting_envs_without_threads_get_more_workers_than_cores(
    cost: Cost, asked: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = chosen(cost, monkeypatch, cores=2, env_threads=asked)
    assert (layout.num_workers, layout.env_threads) == (8, 1)
    assert "env threads" not in layout.why


def test_waiting_envs_get_threads_in_a_worker_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = chosen(TOGETHER, monkeypatch, cores=2)
    assert (layout.num_workers, layout.env_threads) == (2, 16)
    assert "16 env threads each" in layout.why
    assert layout.predicted_rollout_s is not None
    assert max(layout.predicted_rollout_s) == 2
    assert layout.measured is not None
    assert layout.measured["threaded_more_s"] == 1e-4
    many = chosen(TOGETHER, monkeypatch, cores=1, groups=1000)
    assert many.num_workers == 0, "processes cost memory"
    assert many.env_threads == 64, "not one per env for ever"


def test_a_number_of_threads_that_was_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(TOGETHER, monkeypatch, cores=2, env_threads=3).env_threads == 3
    assert chosen(HEAVY, monkeypatch, cores=2, env_threads=3).env_threads == 3
    assert chosen(HEAVY, monkeypatch, cores=8, env_threads=9).env_threads == 4, "a worker has no more envs"
    assert chosen(HEAVY, monkeypatch, cores=2).env_threads == 1


@pytest.mark.parametrize(("cost", "cores"), [(LIGHT, 4), (HEAVY, 1)], ids=["light envs", "one core"])
def test_one_process_where_no_other_wins(cost: Cost, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = chosen(cost, monkeypatch, cores=cores)
    assert layout.num_workers == 0
    assert layout.why.startswith("one process: no worker count is predicted to beat")


def test_small_budgets_stay_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # A rollout would take 1 s instead of 4: two rollouts save more than it takes to start workers, half of one not.
    assert chosen(HEAVY, monkeypatch, rollouts=0.5).num_workers == 0
    assert "less than" in chosen(HEAVY, monkeypatch, rollouts=0.5).why
    assert chosen(HEAVY, monkeypatch, rollouts=4).num_workers == 4
    assert chosen(HEAVY, monkeypatch, rollouts=None).num_workers == 4, "a budget of time or episodes"


def program(**settings: Any) -> tuple[WorkerRecipe, int]:
    config = TrainConfig.from_flat(n_envs=16, group_size=2, **settings)
    recipe, network = env_recipe(config), policy_recipe(config)
    spec = recipe.probe()
    shape = SlotShape(spec, 16, 8, 2)
    made = WorkerRecipe(
        env=recipe,
        policy=network,
        shape=shape,
        seed=0,
        normalize_obs=True,
        env_threads=config.parallel.env_threads,
    )
    return made, size_of(network.build(spec))


@pytest.mark.alone
def test_measuring_tells_work_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION_S", 0.2)
    for kwargs, waits in (({"cpu_ms": 2.0}, False), ({"cpu_ms": 0.0, "sleep_ms": 2.0}, True)):
        cost = layouts.measure(*program(env="paceline/Busy-v0", env_kwargs=kwargs), timeouts_s=(60.0, 60.0))
        assert cost.env_s > 2 * 2e-3 * 0.9, "two envs of 2 ms a row"
        # Other programs on the machine make work look like waiting, never the other way round.
        assert cost.waits if waits else (cost.env_cpu_s > 2 * 2e-3 * 0.9)
        assert 0 < cost.inference_s < 0.5
        assert 0 <= cost.inference_more_s <= cost.inference_s
        assert (cost.threaded_s is not None) is cost.waits, "threads are tried where envs wait"


def free_running(made: WorkerRecipe, weights: int) -> bool:
    """Whether the envs of a worker that has all of them go at their own pace."""
    arena = Arena.create(made.fields(weights, 1))
    collector = made.collector(arena, Share(0, 0, made.shape.groups), [Slots(arena, made.shape)], arena.__getitem__)
    try:
        return isinstance(collector._collectors[0]._envs, ThreadPerEnv)
    finally:
        collector.close()
        arena.close()


def test_envs_go_at_their_own_pace_where_they_wait_long_and_nothing_looks_at_all_of_them() -> None:
    plain, weights = program(env="CartPole-v1", env_threads=16)
    waiting = replace(plain, env_wait_s=1.0)
    assert free_running(waiting, weights)
    assert not free_running(plain, weights), "nobody knows how long they wait"
    assert not free_running(replace(waiting, env_wait_s=1e-4), weights), "too short for 16 threads to do their work in"
    assert not free_running(replace(waiting, env_threads=15), weights)
    assert not free_running(replace(waiting, on_nan="warn"), weights)


@pytest.mark.alone
def test_each_worker_finds_out_how_long_its_envs_wait() -> None:
    made, weights = program(env="paceline/Busy-v0", env_kwargs={"cpu_ms": 0.0, "sleep_ms": 8.0})
    assert made.env_threads == "auto"
    assert free_running(made, weights)


def test_workers_are_told_what_the_driver_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = chosen(TOGETHER, monkeypatch, cores=2)
    assert layout.env_wait_s == pytest.approx((4e-3 - 1e-5) / 4)
    assert replace(layout, measured=None).env_wait_s == 0.0
    monkeypatch.setattr("paceline.train.build.layout_for", lambda *_: replace(layout, num_workers=0, runtime="inline"))
    made = build(TrainConfig.from_flat(env="CartPole-v1", n_envs=8, n_steps=8))
    assert made.plan.base.env_wait_s == layout.env_wait_s
    made.close()


def test_measuring_leaves_the_program_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION_S", 0.01)
    made, weights = program(env="CartPole-v1")
    before = made.shape
    layouts.measure(made, weights, (60.0, 60.0))
    assert made.shape is before
    assert (before.n_steps, before.groups) == (16, 8)


def test_threads_are_not_tried_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION_S", 0.05)
    cost = layouts.measure(
        *program(env="paceline/Busy-v0", env_kwargs={"cpu_ms": 0, "sleep_ms": 1}, env_threads=1),
        timeouts_s=(60.0, 60.0),
    )
    assert cost.threaded_s is None
    assert not cost.threads_pay


class Holds(Busy):
    """Waits with the interpreter lock in its hand."""

    def step(self, action: int | np.int64) -> Any:
        ctypes.PyDLL(None).usleep(1000)
        return super().step(action)


@pytest.mark.alone
def test_waiting_with_the_interpreter_lock_held_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "CALIBRATION_S", 0.4)  # a dozen rollouts: with three, other load may look like a gain
    cost = layouts.measure(*program(env=lambda: Holds(cpu_ms=0)), timeouts_s=(60.0, 60.0))
    assert cost.waits
    assert not cost.threads_pay


@pytest.mark.parametrize(("workers", "asked", "given"), [(0, "auto", 1), (0, 3, 3), (2, "auto", "auto"), (2, 3, 3)])
def test_with_a_given_worker_count_workers_decide_and_sequential_is_sequential(
    workers: int, asked: int | str, given: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = SimpleNamespace(work=None, close=lambda: None, num_workers=workers)
    monkeypatch.setattr("paceline.train.workers.ProcessRuntime", lambda *args, **kwargs: nobody)
    it = TrainConfig.from_flat(env="CartPole-v1", n_envs=8, num_workers=workers, env_threads=asked, n_steps=8)
    made = build(it)
    assert made.layout.env_threads == made.plan.base.env_threads == given
    assert asdict(made.layout)["env_threads"] == given
    assert "env_threads" not in {**made.identity(), **made.schedule()}
    made.close()


@pytest.mark.parametrize("envs", [2, 3, 4, 7])
def test_few_envs_that_wait_do_so_at_the_same_time(envs: int) -> None:
    meeting = threading.Barrier(envs)

    class Meets(Busy):
        def step(self, action: Any) -> Any:
            meeting.wait(20.0)  # broken, and the env fails, unless all of them are in their steps
            return super().step(action)

    made = build(
        TrainConfig.from_flat(
            env=lambda: Meets(cpu_ms=0), n_envs=envs, group_size=1, num_workers=0, env_threads=64, n_steps=4
        )
    )
    try:
        made.rollouts.reset()
        batch = made.rollouts.next(0)
        assert isinstance(batch, Trajectory)
        assert batch.reward.shape == (4, envs)
    finally:
        made.close()

"""The choice of the number of workers of a vector env, from made-up costs."""

from __future__ import annotations

import pytest
from tests.unit.vector.toys import SampleEnv

from paceline import make_vec
from paceline.envs.step_cost import StepCost
from paceline.vector.choose import Choice, choose, hand_over_s, predict

CHEAP, DEAR = StepCost(5e-6, 5e-6), StepCost(1e-3, 1e-3)
WAITING = StepCost(2e-3, 2e-5)


@pytest.mark.parametrize(
    ("cost", "n", "cores", "workers", "threads"),
    [
        (CHEAP, 8, 2, 0, 1),
        (DEAR, 8, 2, 2, 1),
        (DEAR, 8, 1, 0, 1),
        (DEAR, 1, 8, 0, 1),
        (DEAR, 32, 4, 4, 1),
    ],
)
def test_workers_are_chosen_if_predicted_faster(cost: StepCost, n: int, cores: int, workers: int, threads: int) -> None:
    choice = choose(cost, n, "auto", cores)
    assert (choice.num_workers, choice.env_threads) == (workers, threads)
    assert ("one process" in choice.why) == (workers == 0)


@pytest.mark.parametrize("bound", [True, False])
def test_waiting_envs_get_threads_and_a_worker_per_core_if_threads_can_be_bound(
    bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.vector.choose.CAN_BIND", bound)
    choice = choose(WAITING, 32, "auto", 2)
    assert (choice.num_workers == 2) == bound
    assert choice.env_threads != 1
    assert choose(WAITING, 32, 1, 2).env_threads == 1


def test_measured_wake_up_overhead_decides_about_workers() -> None:
    choice = choose(StepCost(2e-5, 2e-5), 32, "auto", 2)
    assert choice.num_workers == 2
    assert choice.pays(1e-4)
    assert not choice.pays(5e-4)
    assert choice.without_workers(5e-4).num_workers == 0


def test_wake_up_overhead_is_measured_without_touching_an_env() -> None:
    vec = make_vec(SampleEnv, 4, 2, env_threads=1)
    for waits in (False, True):
        choice = Choice(2, 1, "", inline_s=2e-3, workers_s=1e-3, waits=waits)
        assert 0 < hand_over_s(vec._channel, choice) < 0.1
    assert vec.get_attr("length") == (0, 0, 0, 0)
    vec.close()


@pytest.mark.parametrize("pays", [True, False])
def test_auto_uses_workers_only_if_the_measured_overhead_is_small_enough(
    pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.vector.make.step_cost", lambda env, seconds: DEAR)
    monkeypatch.setattr("paceline.vector.make.threads.core_budget", lambda: 2)
    monkeypatch.setattr("paceline.vector.make.hand_over_s", lambda channel, choice: 1e-4 if pays else 1.0)
    vec = make_vec(SampleEnv, 4)
    assert (vec.num_workers, "2 workers:" in vec.why) == ((2, True) if pays else (0, False))
    vec.reset(seed=0)
    vec.close()


def test_more_workers_than_cores_share_them() -> None:
    assert predict(DEAR, 8, 4, 1, cores=2) == predict(DEAR, 8, 2, 1, cores=2)
    assert predict(DEAR, 8, 4, 1, cores=4) < predict(DEAR, 8, 4, 1, cores=2)

"""The trial that finds out whether a step of an env waits, on simulated clocks: no assertion depends on real time."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tests.unit.envs.toys import SpaceEnv

from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.envs.step_cost import (
    FEWEST_STEPS,
    MOST_S,
    MOST_THREADS,
    SHORTEST_WAIT_S,
    StepCost,
    measure_steps,
    step_cost,
    threads_for,
    wait_s,
)


class Machine:
    """Simulated clocks, which only `compute`, `sleep` and `preempt` advance."""

    def __init__(self) -> None:
        self.wall_s, self.cpu_s, self.waits = 100.0, 5.0, 7

    def compute(self, seconds: float) -> None:
        self.wall_s += seconds
        self.cpu_s += seconds

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds
        self.waits += 1

    def preempt(self, seconds: float) -> None:
        self.wall_s += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine whose clocks `step_cost` reads."""
    made = Machine()
    monkeypatch.setattr("paceline.envs.step_cost.perf_counter", lambda: made.wall_s)
    monkeypatch.setattr("paceline.envs.step_cost.process_time", lambda: made.cpu_s)
    monkeypatch.setattr("paceline.envs.step_cost.waits_so_far", lambda: made.waits)
    return made


class Simulated(SpaceEnv):
    """Spends simulated time in each step."""

    def __init__(self, machine: Machine, *, compute: float = 0.0, sleep: float = 0.0, preempt: float = 0.0) -> None:
        super().__init__()
        self._machine, self._compute, self._sleep, self._preempt = machine, compute, sleep, preempt

    def step(self, action: Any) -> Any:
        self._machine.compute(self._compute)
        if self._sleep:
            self._machine.sleep(self._sleep)
        self._machine.preempt(self._preempt)
        return super().step(action)


@pytest.mark.parametrize(
    ("spent", "waits"),
    [
        ({"compute": 2e-3}, False),
        ({"sleep": 2e-3}, True),
        ({"compute": 1e-4, "sleep": 2e-3}, True),
        ({"compute": 2e-3, "sleep": 1e-3}, False),
        ({"compute": 1e-6, "sleep": SHORTEST_WAIT_S / 2}, False),
        ({"compute": 1e-4, "preempt": 2e-3}, False),
    ],
    ids=["computes", "sleeps", "mostly sleeps", "mostly computes", "sleeps too briefly", "loses the CPU to others"],
)
def test_a_sleeping_env_is_told_from_a_busy_one(spent: dict[str, float], waits: bool, machine: Machine) -> None:
    cost = step_cost(Simulated(machine, **spent))
    assert cost.waits is waits
    assert cost.wall_s == pytest.approx(sum(spent.values()))
    assert cost.wait_s == pytest.approx(spent["sleep"] if waits else 0.0)
    if "preempt" in spent:
        assert cost.cpu_s == cost.wall_s, "time that other processes took is no waiting"


def test_a_measurement_lasts_as_long_as_asked_but_has_enough_steps_and_an_end(machine: Machine) -> None:
    for seconds_per_call, calls in ((1e-3, 20), (1e-2, FEWEST_STEPS), (0.4, 3)):
        made = list[int]()

        def step(made: list[int] = made, seconds: float = seconds_per_call) -> float:
            made.append(1)
            machine.compute(seconds)
            return 0.0

        cost = measure_steps(step, 0.0199, most_s=MOST_S)
        assert len(made) == calls
        assert cost.wall_s == pytest.approx(seconds_per_call)


def test_time_outside_the_envs_is_subtracted_and_calls_are_divided_into_steps(machine: Machine) -> None:
    def rollout() -> float:
        for _ in range(4):
            machine.sleep(1e-3)
            machine.compute(2e-4)
        machine.compute(5e-3)  # the policy
        return 5e-3

    cost = measure_steps(rollout, 0.1, steps_per_call=4)
    assert cost.wall_s == pytest.approx(1.2e-3)
    assert cost.cpu_s == pytest.approx(2e-4)


def test_one_switch_per_call_does_not_make_every_step_wait(machine: Machine) -> None:
    def rollout() -> float:
        machine.sleep(4e-3)
        return 0.0

    assert measure_steps(rollout, 0.1, steps_per_call=1).waits
    assert not measure_steps(rollout, 0.1, steps_per_call=4).waits


def test_a_few_delayed_steps_do_not_count(machine: Machine) -> None:
    number = iter(range(1000))

    def step() -> float:
        machine.sleep(1e-3 if next(number) % 4 else 1.0)
        return 0.0

    assert measure_steps(step, 0.0, fewest=20, most_s=100.0).wall_s == pytest.approx(1e-3)


class Picky(SpaceEnv):
    """Raises for any action but the last of each component, the only one that the mask allows."""

    def __init__(self, *nvec: int, in_obs: bool = False, as_vector: bool = False) -> None:
        super().__init__(action_space=spaces.Discrete(nvec[0]) if len(nvec) == 1 else spaces.MultiDiscrete(list(nvec)))
        parts = [np.eye(n, dtype=np.int8)[-1] for n in nvec]
        self._last, self._in_obs = [n - 1 for n in nvec], in_obs
        self._mask: Any = np.concatenate(parts) if as_vector or len(nvec) == 1 else tuple(parts)

    def info(self) -> dict[str, Any]:
        return {} if self._in_obs else {"action_mask": self._mask}

    def reset(self, **how: Any) -> Any:
        obs, info = super().reset(**how)
        return ({"it": obs, "action_mask": self._mask} if self._in_obs else obs), info

    def step(self, action: Any) -> Any:
        if np.ravel(action).tolist() != self._last:
            raise ValueError("illegal")
        obs, *rest = super().step(action)
        return ({"it": obs, "action_mask": self._mask} if self._in_obs else obs), *rest


@pytest.mark.parametrize(
    "env",
    [Picky(9), Picky(9, in_obs=True), Picky(9, 8), Picky(9, 8, as_vector=True)],
    ids=["discrete", "mask in the observation", "tuple of masks", "masks as one vector"],
)
def test_a_trial_takes_legal_actions(env: gym.Env[Any, Any]) -> None:
    assert step_cost(env, 0.001).wall_s > 0


def test_a_trial_resets_ended_episodes_and_uses_the_given_seed() -> None:
    env = SpaceEnv()
    step_cost(env, 0.001, seed=11)
    assert env.seeds[0] == 11
    assert set(env.seeds[1:]) <= {None}


def test_a_failing_env_costs_nothing() -> None:
    class Fails(SpaceEnv):
        def step(self, action: Any) -> Any:
            raise RuntimeError("not today")

    assert step_cost(Fails(), 0.001) == StepCost()


@pytest.mark.parametrize("fails", [{"step"}, {"__init__"}, {"close"}, set()], ids=str)
def test_an_env_that_fails_in_the_trial_counts_as_computing(fails: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(SpaceEnv):
        def __init__(self) -> None:
            super().__init__()
            self._fail("__init__")

        def step(self, action: Any) -> Any:
            self._fail("step")
            return super().step(action)

        def close(self) -> None:
            super().close()
            self._fail("close")

        def _fail(self, where: str) -> None:
            if where in fails:
                raise RuntimeError(where)

    monkeypatch.setattr(StepCost, "waits", property(lambda cost: cost.wall_s > 0))
    monkeypatch.setattr(StepCost, "wait_s", property(lambda cost: cost.wall_s))
    assert (wait_s(EnvRecipe(source=Fails), seed=3) > 0) is (not fails)


def test_the_trial_uses_an_env_and_a_seed_of_its_own() -> None:
    made: list[SpaceEnv] = []

    def make() -> gym.Env[Any, Any]:
        made.append(SpaceEnv())
        return made[-1]

    wait_s(EnvRecipe(source=make), seed=1)
    (trial,) = made
    assert trial.closed == 1
    assert trial.seeds[0] not in [episode_seed(1, i, 0) for i in range(4)]


def test_number_of_threads() -> None:
    assert threads_for(8, 1e-3) == 8
    assert threads_for(1000, 1e-3) == MOST_THREADS
    assert threads_for(8, 0.0) == 1
    assert threads_for(8, 0.0, 3) == 3
    assert threads_for(2, 1e-3, 3) == 2, "no more threads than envs"

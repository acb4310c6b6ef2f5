"""`Busy`: its steps take the configured CPU and sleep time."""

from __future__ import annotations

import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from paceline.envs.busy import SLOW_ENV_FACTOR, SLOW_FACTOR, Busy, burn
from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError


def test_registered_on_import() -> None:
    spec = EnvRecipe(source="paceline/Busy-v0", kwargs={"obs_size": 6}).probe()
    assert spec.obs[0].shape == (6,)
    assert spec.action.nvec == (2,)


def test_burns_the_threads_own_cpu_time_even_under_contention() -> None:
    # Two threads share one interpreter: a wall-clock deadline would leave each with half the work.
    spent = []

    def work() -> None:
        before = time.thread_time()
        burn(0.05)
        spent.append(time.thread_time() - before)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(spent) >= 0.05


@pytest.mark.alone
def test_step_takes_the_configured_cpu_time() -> None:
    env = Busy(cpu_ms=2.0)
    env.reset(seed=0)
    before = time.thread_time()
    for _ in range(10):
        env.step(0)
    assert 0.020 <= time.thread_time() - before < 0.040


@pytest.mark.alone
def test_sleep_costs_wall_time_and_no_cpu() -> None:
    env = Busy(cpu_ms=0.0, sleep_ms=10.0)
    env.reset(seed=0)
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(5):
        env.step(0)
    assert time.perf_counter() - wall >= 0.05
    assert time.thread_time() - cpu < 0.025


def test_jitter_makes_some_steps_twenty_times_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    burnt: list[float] = []
    monkeypatch.setattr("paceline.envs.busy.burn", burnt.append)
    env = Busy(cpu_ms=1.0, jitter=0.2, episode_length=10_000)
    env.reset(seed=0)
    for _ in range(2000):
        env.step(0)
    assert set(np.round(burnt, 6)) == {0.001, 0.001 * SLOW_FACTOR}
    assert 300 < sum(cost > 0.01 for cost in burnt) < 500


def test_the_right_action_is_the_sign_of_the_first_number() -> None:
    env = gym.make("paceline/Busy-v0", cpu_ms=0.0, disable_env_checker=True)
    obs, _ = env.reset(seed=1)
    for _ in range(50):
        right = int(obs[0] > 0)
        obs, reward, *_ = env.step(right)
        assert reward == 1.0
        wrong = 1 - int(obs[0] > 0)
        obs, reward, *_ = env.step(wrong)
        assert reward == 0.0


def test_seeded_and_truncated() -> None:
    runs = []
    for _ in range(2):
        env = Busy(cpu_ms=0.0, episode_length=3)
        seen = [env.reset(seed=4)[0]]
        flags = []
        for _ in range(3):
            obs, _, terminated, truncated, _ = env.step(0)
            seen.append(obs)
            flags.append((terminated, truncated))
        runs.append(np.stack(seen))
    assert flags == [(False, False), (False, False), (False, True)]
    assert np.array_equal(runs[0], runs[1])
    assert len(np.unique(runs[0])) == runs[0].size


@pytest.mark.parametrize("kwargs", [{"cpu_ms": -1.0}, {"jitter": 1.5}, {"obs_size": 0}, {"episode_length": 0}])
def test_invalid_settings_raise_with_their_value(kwargs: dict[str, float]) -> None:
    ((name, value),) = kwargs.items()
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        EnvRecipe(source="paceline/Busy-v0", kwargs=kwargs).make()


def test_slow_env_is_slow_in_all_its_episodes() -> None:
    def slept(seeds: list[int]) -> float:
        env = Busy(cpu_ms=0.0, sleep_ms=1.0, slow_env=3, run_seed=7)
        for seed in seeds:
            env.reset(seed=seed)
        return env._factor

    assert slept([episode_seed(7, 3, 0)]) == SLOW_ENV_FACTOR
    assert slept([episode_seed(7, 3, 0), episode_seed(7, 3, 1)]) == SLOW_ENV_FACTOR, "also in later episodes"
    assert slept([episode_seed(7, 2, 0)]) == 1
    assert slept([episode_seed(8, 3, 0)]) == 1

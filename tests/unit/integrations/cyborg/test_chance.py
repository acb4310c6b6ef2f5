"""Random generators of envs: independent of each other and of Python's global one."""

from __future__ import annotations

import random
import threading
from types import ModuleType
from typing import Any

import numpy as np

from paceline.integrations.cyborg import CybORGEnv, simulator


def test_modules_draw_from_the_global_generator_when_no_env_is_stepped(standin: ModuleType) -> None:
    import random

    simulator()
    random.seed(4)
    drawn: Any = standin.choice(range(10**6)), standin.random.random(), standin.random.Random
    random.seed(4)
    assert drawn == (random.choice(range(10**6)), random.random(), random.Random)


Played = list[tuple[list[float], float, bool, list[int]]]


def play(env: CybORGEnv, seed: int, steps: int = 40) -> Played:
    """Observations, rewards and true states of the first steps of an episode."""
    begun, _ = env.reset(seed=seed)
    seen: Played = [(begun.tolist(), 0.0, False, env.true_state().tolist())]
    for action in np.random.default_rng(seed).integers(0, 145, steps).tolist():
        obs, reward, _, truncated, _ = env.step(action)
        seen.append((obs.tolist(), reward, truncated, env.true_state().tolist()))
    return seen


def test_envs_of_one_process_are_independent_and_leave_the_global_generator_alone(standin: ModuleType) -> None:
    alone = [play(CybORGEnv(red_agent="meander"), seed) for seed in (5, 6)]
    one, other = CybORGEnv(red_agent="meander"), CybORGEnv(red_agent="meander")
    before = random.getstate()
    one.reset(seed=5)
    other.reset(seed=6)
    plans = [np.random.default_rng(seed).integers(0, 145, 40).tolist() for seed in (5, 6)]
    for step, actions in enumerate(zip(*plans, strict=True), start=1):
        for env, action, expected in zip((one, other), actions, alone, strict=True):
            obs, reward, _, truncated, _ = env.step(action)
            assert (obs.tolist(), reward, truncated, env.true_state().tolist()) == expected[step]
    assert random.getstate() == before


def test_envs_in_threads_are_independent(standin: ModuleType) -> None:
    alone = [play(CybORGEnv(), seed) for seed in range(4)]
    envs = [CybORGEnv() for _ in range(4)]
    found: dict[int, Played] = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: play(envs[i], i)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(4)] == alone

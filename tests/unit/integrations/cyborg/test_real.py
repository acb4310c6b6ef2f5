"""Comparison with the real CybORG; needs `CYBORG_PATH` and the packages that CybORG imports."""

from __future__ import annotations

import importlib
import os
import random
from typing import Any

import numpy as np
import pytest

from paceline.domains.cyber.actions import HOSTS
from paceline.integrations.cyborg import ACCELERATIONS, CybORGEnv, install, simulator

pytestmark = [
    pytest.mark.skipif("CYBORG_PATH" not in os.environ, reason="set CYBORG_PATH to a checkout of CybORG"),
    pytest.mark.filterwarnings("ignore"),  # CybORG and the gym that it imports are older than their dependencies
]
STEPS = 600
LOOK = 5
"""Steps between two reads of the full true state, which take longer than a step."""
RESTORE_SERVER = 132 + HOSTS.index("Op_Server0")


def uniform(seed: int) -> list[int]:
    return [int(action) for action in np.random.default_rng(seed).integers(0, 145, STEPS)]


def scripted(seed: int) -> list[int]:
    """Host by host: analyse, a decoy, remove, restore; Op_Server0 in between."""
    order = np.random.default_rng(seed).permutation(13)
    turns = [2 + kind * 13 + int(host) for host in order for kind in (0, 2, 7, 1, 10, 4)]
    return [RESTORE_SERVER if step % 37 == 36 else turns[step % len(turns)] for step in range(STEPS)]


def stock_game(red: str, seed: int, actions: list[int]) -> list[Any]:
    """The unmodified wrapper of the challenge."""
    wrappers = importlib.import_module("CybORG.Agents.Wrappers")
    cyborg = install.build(red).cyborg
    env = wrappers.ChallengeWrapper(env=cyborg, agent_name="Blue")
    random.seed(seed)
    trace: list[Any] = [np.asarray(env.reset()).tolist()]
    for step, action in enumerate(actions):
        seen, reward, *_ = env.step(action)
        trace.append((seen.tolist(), reward, cyborg.get_agent_state("True") if step % LOOK == 0 else None))
    return trace


def our_game(red: str, seed: int, actions: list[int], fast: bool | str) -> list[Any]:
    env = CybORGEnv(red_agent=red, max_steps=len(actions), fast=fast)
    trace: list[Any] = [env.reset(seed=seed)[0].tolist()]
    for step, action in enumerate(actions):
        seen, reward, *_ = env.step(action)
        true = env._parts.cyborg.get_agent_state("True") if step % LOOK == 0 else None
        trace.append((seen.tolist(), reward, true))
        assert true is None or env.true_state().tolist() == [level(true[host]) for host in HOSTS]
    return trace


def level(host: dict[str, Any]) -> int:
    names = [session["Username"] for session in host.get("Sessions", ()) if session["Agent"] == "Red"]
    return max((2 if name in ("root", "SYSTEM") else 1 for name in names), default=0)


@pytest.fixture(autouse=True)
def imported() -> None:
    simulator()


@pytest.mark.parametrize("plan", [uniform, scripted])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_600_steps_equal_those_of_the_unmodified_simulator(red: str, seed: int, plan: Any) -> None:
    actions = plan(seed)
    stock = stock_game(red, seed, actions)
    assert our_game(red, seed, actions, fast=True) == stock
    assert len({trace[1] for trace in stock[1:]}) > 5


@pytest.mark.parametrize("fast", [False, "reward,actions", *ACCELERATIONS])
def test_each_acceleration_alone_changes_nothing(fast: bool | str) -> None:
    actions = uniform(9)[:200]
    assert our_game("bline", 9, actions, fast) == stock_game("bline", 9, actions)


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    actions = scripted(3)[:100]
    used = CybORGEnv(red_agent="meander")
    before = random.getstate()
    used.reset(seed=8)
    for action in actions:
        used.step(action)
    again = [used.reset(seed=3)[0].tolist(), *(used.step(action)[0].tolist() for action in actions)]
    assert random.getstate() == before
    fresh = CybORGEnv(red_agent="meander")
    assert [fresh.reset(seed=3)[0].tolist(), *(fresh.step(action)[0].tolist() for action in actions)] == again


def test_it_knows_its_commit() -> None:
    found = simulator()
    assert found.commit is not None
    assert len(found.commit) == 40
    assert found.rules in ("head", "leaderboard-2022")

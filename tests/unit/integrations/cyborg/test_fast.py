"""Accelerated games equal those of the stand-in without acceleration, and skip the work."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from paceline.domains.cyber.actions import HOSTS
from paceline.errors import ConfigError
from paceline.integrations.cyborg import ACCELERATIONS, CybORGEnv

RESTORE_SERVER = 132 + HOSTS.index("Op_Server0")


@cache
def games(fast: bool | str, red: str, seed: int, steps: int = 45) -> list[Any]:
    """Observations, rewards and full true states of two episodes."""
    env = CybORGEnv(red_agent=red, max_steps=steps, fast=fast)
    draws = np.random.default_rng(seed)
    trace: list[Any] = []
    for episode in range(2):
        trace.append(env.reset(seed=seed + episode)[0].tolist())
        for step in range(steps):
            action = RESTORE_SERVER if step % 20 == 19 else int(draws.integers(0, 145))
            obs, reward, *_ = env.step(action)
            trace.append((obs.tolist(), reward, env.true_state().tolist(), env._parts.cyborg.get_agent_state("True")))
    return trace


@pytest.mark.parametrize(("fast", "red"), [(True, "meander"), *((name, "bline") for name in ACCELERATIONS)])
def test_the_games_are_the_same(standin: ModuleType, fast: bool | str, red: str) -> None:
    stock = games(False, red, 7)
    rewards = [trace[1] for trace in stock if isinstance(trace, tuple)]
    assert min(rewards) < -10 < max(rewards)  # OTService goes down and comes back
    assert games(fast, red, 7) == stock


def test_accelerated_games_skip_the_work(standin: Any) -> None:
    stock, spared = CybORGEnv(fast=False), CybORGEnv(fast="reward,actions")
    counts = []
    for env in (stock, spared):
        env.reset(seed=1)
        controller, wrapper = env._parts.controller, env._parts.enumerated
        before = controller.true_states, wrapper.rebuilt
        for action in range(20):
            env.step(action)
        counts.append((controller.true_states - before[0], wrapper.rebuilt - before[1]))
    assert counts == [(20, 20), (0, 0)]


def test_a_step_without_an_agent_gets_the_full_true_state(standin: ModuleType) -> None:
    env = CybORGEnv(fast="reward")
    env.reset(seed=1)
    before = env._parts.controller.true_states
    env._parts.controller.step(None, env._parts.enumerated.possible_actions[0])
    assert env._parts.controller.true_states == before + 1


def test_actions_are_rebuilt_when_their_inputs_change(standin: ModuleType) -> None:
    env = CybORGEnv(fast="actions")
    wrapper = env._parts.enumerated
    kept = list(wrapper.possible_actions)
    assert wrapper.get_action_space("Red") == 1
    assert wrapper.get_action_space("Blue") == 145
    assert [str(action) for action in wrapper.possible_actions] == [str(action) for action in kept]
    space = env._parts.cyborg.get_action_space("Blue")
    space["hostname"]["Another"] = True
    assert wrapper.action_space_change(space) == 2 + 11 * 14


def test_other_games_of_the_process_stay_as_they_are(standin: Any) -> None:
    CybORGEnv(fast=True)
    other = standin.CybORG("Scenario2.yaml", "sim", agents={"Red": standin.SleepAgent})
    assert type(other.environment_controller.state.hosts["User0"]) is standin.Host
    other.environment_controller.step("Blue", standin.Sleep())
    assert other.environment_controller.true_states == 1


def test_an_unknown_reward_calculator_is_not_accelerated(standin: Any) -> None:
    standin.Controller.calculator = type("Mine", (standin.Controller.calculator,), {})
    with pytest.raises(ConfigError, match=r"'Mine' is not known.*Use fast=false"):
        CybORGEnv()
    CybORGEnv(fast="actions,table,addresses,reset")

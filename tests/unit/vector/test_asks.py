"""Operations on single envs search through wrappers."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from tests.unit.vector.toys import SampleEnv

from paceline.vector import asks


def wrapped() -> Any:
    return gym.wrappers.TimeLimit(gym.wrappers.PassiveEnvChecker(SampleEnv()), 5)


def test_call_calls_methods_and_gets_other_attributes() -> None:
    env = wrapped()
    assert asks.call("twice", (4,), {"and_more": 1}, env, 0) == 9
    assert asks.call("label", (), {}, env, 0) == "new"


def test_get_attr_does_not_call() -> None:
    assert callable(asks.get_attr("twice", wrapped(), 0))


def test_set_attr_takes_the_value_of_the_env_and_finds_its_owner() -> None:
    env = wrapped()
    asks.set_attr("label", ["a", "b", "c"], env, 1)
    assert env.unwrapped.label == "b"
    assert "label" not in vars(env)
    asks.set_attr("unknown", [7, 8], env, 1)
    assert env.unknown == 8


def test_put_attr_hides_the_inner_attribute() -> None:
    env = wrapped()
    asks.put_attr("label", "outer", env, 0)
    assert (env.label, env.unwrapped.label) == ("outer", "new")


def test_attributes_and_wrappers_are_found_at_any_depth() -> None:
    env = wrapped()
    assert asks.has_attr("twice", env, 0)
    assert not asks.has_attr("thrice", env, 0)
    assert asks.is_wrapped(gym.wrappers.TimeLimit, env, 0)
    assert asks.is_wrapped(gym.wrappers.PassiveEnvChecker, env, 0)
    assert not asks.is_wrapped(gym.wrappers.ClipReward, env, 0)

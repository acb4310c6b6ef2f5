"""Every rule finds an env that breaks it, by name, and is silent about the envs of Gymnasium and Paceline."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import paceline.envs  # noqa: F401 - registers its envs
from paceline.envs.make import EnvRecipe
from paceline.insight import env_check
from paceline.insight.env_check import Finding, check_env

UNIT = spaces.Box(-1, 1, (3,), np.float32)


class Walk(gym.Env[Any, Any]):
    """Ten steps of random numbers, then truncated. Its subclasses break one rule each."""

    observation_space: spaces.Space[Any] = UNIT
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    steps = 0

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.obs(), 1.0, False, self.steps >= 10, {}


class Outside(Walk):
    def obs(self) -> Any:
        return super().obs() * np.float32(1 if self.steps < 3 else 2)


class Float64(Walk):
    def obs(self) -> Any:
        return super().obs().astype(np.float64)


class Plain(Walk):
    def obs(self) -> Any:
        return super().obs().tolist()


class Short(Walk):
    def obs(self) -> Any:
        return super().obs()[: 3 - (self.steps > 3)]


class NotANumber(Walk):
    def obs(self) -> Any:
        return super().obs() * np.float32(np.nan if self.steps > 3 else 1)


class OutOfChoices(Walk):
    observation_space = spaces.Discrete(3)

    def obs(self) -> Any:
        return self.steps


class Keys(Walk):
    observation_space = spaces.Dict(a=UNIT, b=UNIT)

    def obs(self) -> Any:
        return {"a": super().obs(), "b": super().obs()} if self.steps < 3 else {"a": super().obs()}


class Inner(Walk):
    observation_space = spaces.Dict(a=UNIT, b=UNIT)

    def obs(self) -> Any:
        return {"a": super().obs(), "b": 2 * super().obs()}


class FloatImage(Walk):
    observation_space = spaces.Box(0, 1, (8, 8, 3), np.float32)

    def obs(self) -> Any:
        return self.np_random.random((8, 8, 3), np.float32)


class SmallBytes(Walk):
    observation_space = spaces.Box(0, 1, (8, 8, 3), np.uint8)

    def obs(self) -> Any:
        return self.np_random.integers(0, 2, (8, 8, 3), np.uint8)


class Steering(Walk):
    action_space = spaces.Box(0, 10, (2,), np.float32)


class Endless(Walk):
    def step(self, action: Any) -> Any:
        return self.obs(), 1.0, False, False, {}


class Limited(Walk):
    def step(self, action: Any) -> Any:
        obs, reward, _, ended, info = super().step(action)
        return obs, reward, ended, False, info


class Unseeded(Walk):
    def obs(self) -> Any:
        return np.random.default_rng().uniform(-1, 1, 3).astype(np.float32)


class OneSeed(Walk):
    """Draws from a generator of its own, which a seed starts anew, but always alike."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(0)
        return super().reset(seed=seed)

    def obs(self) -> Any:
        return self.rng.uniform(-1, 1, 3).astype(np.float32)


class Result(Walk):
    """Changes what a step returns."""

    at, value = 1, np.ones(1)

    def step(self, action: Any) -> Any:
        result = list(super().step(action))
        result[self.at] = self.value
        return tuple(result)


class NoReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class Four(Walk):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class Forgetful(Walk):
    """Never passes the seed on, which only Gymnasium's own checker finds, because nothing is random."""

    def obs(self) -> Any:
        return np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.obs(), {}


def result(at: int, value: Any) -> type[Result]:
    return type("Changed", (Result,), {"at": at, "value": value})


def broken(env: Any) -> list[Finding]:
    return check_env(EnvRecipe(source=env))


@pytest.mark.parametrize(
    ("env", "rule", "said", "wrong"),
    [
        (Outside, "observation bounds", "in step 3 of episode 1, outside its Box, which goes from -1.0 to 1.0", True),
        (Inner, "observation bounds", "observation['b'][", True),
        (Float64, "observation dtype", "must be float32, as in its Box (got float64). Write .astype(np.float32)", True),
        (Plain, "observation type", "must be a numpy array (got list", True),
        (Short, "observation shape", "must have shape (3,) (got (2,) in step 4", True),
        (NotANumber, "observation finite", "a NaN or an infinity in step 4", True),
        (OutOfChoices, "observation value", "must be one of Discrete(3) (got int 3 in step 3", True),
        (Keys, "observation keys", "keys ['a', 'b'] (got ['a'])", True),
        (FloatImage, "image dtype", "is float32: an MLP sees its flat numbers. Return pixels as uint8", False),
        (SmallBytes, "image bounds", "not 0 and 255", False),
        (Steering, "action range", "from 0.0 to 10.0", False),
        (Endless, "episode end", "no episode ended in 300 random steps", False),
        (Limited, "time limit", "all terminated after 10 steps", False),
        (Unseeded, "seed", "two episodes from reset(seed=0) with the same actions differ", True),
        (OneSeed, "seed effect", "start the same episode", True),
        (result(1, np.ones(1)), "reward type", "a reward must be a number (got ndarray array([1.]))", True),
        (result(1, None), "reward type", "got NoneType None", True),
        (result(1, float("nan")), "reward value", "a reward is nan", True),
        (result(2, np.zeros(1)), "done flags", "terminated must be a bool (got ndarray", True),
        (result(3, 0), "done flags", "truncated must be a bool (got int 0). Write bool(truncated)", True),
        (result(4, None), "step result", "info of step must be a dict", True),
        (NoReset, "reset result", "reset must return (obs, info)", True),
        (Four, "step result", "must return (obs, reward, terminated, truncated, info)", True),
        (Forgetful, "gymnasium check_env", "does not call `super().reset(seed=seed)`", False),
    ],
)
def test_a_broken_rule_is_found_by_name(
    env: Any, rule: str, said: str, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_check, "MOST_STEPS", 300)
    found = broken(env)
    (one,) = (one for one in found if one.rule == rule)
    assert said in one.text
    assert one.wrong is wrong
    assert [other.rule for other in found if other.wrong and other.rule != rule] == []


def test_findings_have_one_entry_per_rule() -> None:
    class Twice(Float64):
        def obs(self) -> Any:
            return 2 * super().obs()

    assert [one.rule for one in broken(Twice)] == ["observation dtype", "observation bounds"]


@pytest.mark.parametrize(
    "env",
    [Walk, "CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "Blackjack-v1", "paceline/TicTacToe-v0",
     "paceline/ConnectFour-v0", "paceline/NetworkDefence-v0"],
)  # fmt: skip
def test_nothing_is_found_in_envs_that_obey(env: Any) -> None:
    assert broken(env) == []


def test_an_env_with_a_time_limit_of_gymnasium_may_be_long() -> None:
    gym.register("test/Endless-v0", f"{__name__}:Endless", max_episode_steps=100_000)
    try:
        assert broken("test/Endless-v0") == []
    finally:
        del gym.registry["test/Endless-v0"]

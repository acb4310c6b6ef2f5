"""Scripts written for stable-baselines3: the error says what to write instead."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from tests.games import Counter

from paceline import DQN, PPO
from paceline.errors import ConfigError


class VecEnvOfAnotherLibrary:
    def reset(self) -> None: ...

    def step(self, actions: object) -> None: ...


def wrong(cls: Any, *arguments: object, **settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        cls(*arguments, **settings)
    return str(caught.value)


def test_a_policy_before_the_env() -> None:
    said = wrong(PPO, "MlpPolicy", "CartPole-v1", verbose=1)
    assert said.startswith("PPO('MlpPolicy', ...): the env comes first")
    assert "Write PPO('CartPole-v1'); policy='mlp'" in said
    assert "Write DQN('CartPole-v1'); policy='nature_cnn'" in wrong(DQN, "CnnPolicy", gym.make("CartPole-v1"))
    assert "Write PPO('CartPole-v1')" in wrong(PPO, "MlpPolicy", gym.make_vec("CartPole-v1", 2))
    assert "Write PPO('Acrobot-v1')" in wrong(PPO, "MlpPolicy", env="Acrobot-v1")
    assert "Write PPO(lambda: Counter())" in wrong(PPO, "MlpPolicy", Counter())
    assert "Write PPO(lambda: MyEnv())" in wrong(PPO, "MlpPolicy", VecEnvOfAnotherLibrary())


def test_an_env_object_in_place_of_a_function_that_makes_envs() -> None:
    said = wrong(PPO, gym.make("CartPole-v1"))
    assert said.startswith("PPO: takes an id or a function that makes envs, not an env (got a TimeLimit object)")
    assert said.endswith("Write PPO('CartPole-v1').")
    assert "(got a VecEnvOfAnotherLibrary object)" in wrong(PPO, VecEnvOfAnotherLibrary())


def test_other_positional_arguments() -> None:
    assert wrong(PPO, "CartPole-v1", 4) == (
        "PPO: takes one positional argument, the env (got 2). Name the settings, as in "
        "PPO('CartPole-v1', learning_rate=3e-4)."
    )


def test_a_policy_name_of_stable_baselines3() -> None:
    assert "Use 'mlp', or leave it out" in wrong(PPO, "CartPole-v1", policy="MlpPolicy")


def test_env_classes_and_functions_are_accepted() -> None:
    assert PPO(Counter).config.env_name == "Counter"
    assert PPO(env=lambda: Counter()).config.env_name.endswith("<lambda>")

"""The single env passes Gymnasium's checker, and both envs are registered."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.vector import NetworkDefenceVector
from paceline.envs.make import EnvRecipe

ENV = "paceline/NetworkDefence-v0"


def test_gymnasiums_env_checker_passes() -> None:
    check_env(NetworkDefence(red_agent="meander", green=True, max_steps=20, render_mode="ansi"), skip_render_check=True)


def test_it_is_registered_by_name() -> None:
    assert EnvRecipe(source=ENV).use_native(16)
    assert isinstance(gym.registry[ENV].entry_point, str)
    assert isinstance(gym.registry[ENV].vector_entry_point, str)
    env = gym.make_vec(ENV, 3, red_agent="meander", autoreset_mode=AutoresetMode.NEXT_STEP)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert NetworkDefenceVector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP

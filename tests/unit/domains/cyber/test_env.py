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


def test_the_text_shows_truth_and_belief() -> None:
    env = NetworkDefence(render_mode="ansi")
    env.reset(seed=0)
    for _ in range(30):
        env.step(0)
    lines = (env.render() or "").splitlines()
    assert lines[0] == "step 30, OTService is down"
    assert lines[2 + 7].split() == ["Op_Server0", "privileged", "user"]
    assert lines[2 + 8].split() == ["User0", "privileged"]
    assert NetworkDefence().render() is None
    many = NetworkDefenceVector(2, render_mode="ansi")
    many.reset(seed=0)
    assert len(many.render() or ()) == 2

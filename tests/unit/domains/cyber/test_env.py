"""The single env and the vector env are one game, behind Gymnasium's interfaces."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.scenario import RedAgent
from paceline.domains.cyber.vector import NetworkDefenceVector
from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError, EnvError

ENV = "paceline/NetworkDefence-v0"
MODES = pytest.mark.parametrize("mode", list(AutoresetMode))


def test_gymnasium_has_nothing_to_say() -> None:
    check_env(NetworkDefence(red_agent="meander", green=True, max_steps=20, render_mode="ansi"), skip_render_check=True)


@MODES
def test_the_vector_env_is_gymnasium_s_own_of_single_ones(mode: AutoresetMode) -> None:
    """Everything returned is equal, infos and resets included."""
    settings: dict[str, Any] = {"red_agent": "meander", "green": True, "max_steps": 7}
    n = 5
    ours = NetworkDefenceVector(n, autoreset_mode=mode, **settings)
    theirs = SyncVectorEnv([partial(NetworkDefence, **settings)] * n, autoreset_mode=mode)
    rng = np.random.default_rng(0)
    assert data_equivalence(ours.reset(seed=11), theirs.reset(seed=11), exact=True)
    for _ in range(18):
        actions = rng.integers(0, 145, n)
        one, other = ours.step(actions), theirs.step(actions)
        assert data_equivalence(one, other, exact=True)
        ended = one[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            with pytest.raises(gym.error.ResetNeeded):
                ours.step(actions)
            for env in (ours, theirs):
                obs, _ = env.reset(options={"reset_mask": ended.copy()})
                assert not obs.any()
        assert ours.true_state().tolist() == [env.unwrapped.true_state().tolist() for env in theirs.envs]  # type: ignore[attr-defined]
    # A mask, some seeds, some streams that go on.
    seeds = [None, 3, None, 4, 5]
    mask = np.array([True, True, False, False, True])
    for env in (ours, theirs):
        env.reset(seed=seeds, options={"reset_mask": mask.copy()})
    for _ in range(3):
        actions = rng.integers(0, 145, n)
        assert data_equivalence(ours.step(actions), theirs.step(actions), exact=True)


def trajectory(env: NetworkDefenceVector, row: int, seed: int | list[int | None]) -> list[Any]:
    """What one env of many shows in 60 steps of its own actions."""
    rng = np.random.default_rng(5)
    env.reset(seed=seed)
    shown = []
    for _ in range(60):
        actions = np.zeros(env.num_envs, np.int64)
        actions[row] = rng.integers(0, 145) if rng.random() < 0.3 else 0
        obs, reward, *_ = env.step(actions)
        shown.append((obs[row].tolist(), float(reward[row])))
    return shown


@pytest.mark.parametrize("red_agent", ["bline", "meander"])
def test_a_seed_decides_whatever_else_is_played(red_agent: RedAgent) -> None:
    make: Callable[[int], Any] = partial(NetworkDefenceVector, red_agent=red_agent, max_steps=25)
    alone = trajectory(make(1), 0, 108)
    assert trajectory(make(30), 8, 100) == alone
    assert trajectory(make(3), 1, [7, 108, 7]) == alone
    assert trajectory(make(1), 0, 109) != alone
    assert alone[:25] != alone[25:50]  # episodes of one stream differ


def test_unseeded_envs_differ_and_reset_goes_on() -> None:
    envs = [NetworkDefenceVector(40, red_agent="meander") for _ in range(2)]
    for env in envs:
        env.reset()
        for _ in range(15):
            env.step(np.zeros(40, np.int64))
    assert not np.array_equal(envs[0].true_state(), envs[1].true_state())


def test_a_copy_has_the_same_future() -> None:
    env = NetworkDefenceVector(8, red_agent="meander", max_steps=30)
    env.reset(seed=1)
    for _ in range(10):
        env.step(np.zeros(8, np.int64))
    twin = copy.deepcopy(env)
    for _ in range(40):
        assert data_equivalence(env.step(np.zeros(8, np.int64)), twin.step(np.zeros(8, np.int64)), exact=True)


def test_last_true_states_survive_the_reset() -> None:
    env = NetworkDefenceVector(20, max_steps=30)
    env.reset(seed=0)
    for _ in range(29):
        *_, infos = env.step(np.zeros(20, np.int64))
        assert infos == {}
    before = env.true_state()
    *_, truncated, infos = env.step(np.zeros(20, np.int64))
    assert truncated.all()
    assert infos["_final_info"].all()
    assert (infos["final_info"]["true_state"] >= before).all()  # nobody defends
    assert (infos["final_info"]["true_state"][:, 7] == 2).any()
    assert (env.true_state().sum(axis=1) == 2).all()  # the foothold alone


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"red_agent": "blin"}, "red_agent='blin': unknown. Did you mean 'bline'?"),
        ({"rules": "leaderbord"}, "Did you mean 'leaderboard-2022'?"),
        ({"max_steps": 0}, "max_steps=0: must be at least 1"),
        ({"max_steps": 2.5}, "max_steps=2.5: must be an integer"),
        ({"green": "no"}, "green='no': must be True or False"),
        ({"q1": 1}, "q1=1: must be True or False"),
        ({"read_agent": "bline"}, "unknown argument 'read_agent'. Did you mean 'red_agent'?"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], text: str) -> None:
    for make in (
        EnvRecipe(source=ENV, kwargs=settings).make,
        partial(EnvRecipe(source=ENV, kwargs=settings).make_vector, 2),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert text in str(caught.value)


def test_wrong_calls_of_the_vector_env_are_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'SameStep'"):
        NetworkDefenceVector(2, autoreset_mode="SameStop")
    with pytest.raises(ConfigError, match="render_mode='human': must be 'ansi'"):
        NetworkDefenceVector(2, render_mode="human")
    env = NetworkDefenceVector(2)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(ConfigError, match="3 for 2 envs"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match="array of 2 bools"):
        env.reset(options={"reset_mask": [True, False]})
    env.reset(seed=0)
    with pytest.raises(EnvError, match="one per env"):
        env.step(np.zeros(3, np.int64))
    single = NetworkDefence()
    with pytest.raises(gym.error.ResetNeeded):
        single.step(0)
    single.reset(seed=0)
    with pytest.raises(EnvError, match="from 0 to 144"):
        single.step(145)


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

"""The vector env equals Gymnasium's own vector env of single envs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.scenario import RedAgent
from paceline.domains.cyber.vector import NetworkDefenceVector
from paceline.errors import ConfigError, EnvError

ENV = "paceline/NetworkDefence-v0"
MODES = pytest.mark.parametrize("mode", list(AutoresetMode))


@MODES
def test_it_equals_gymnasiums_sync_vector_env_of_single_envs(mode: AutoresetMode) -> None:
    """All returned values are equal, including infos and resets."""
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
    # A reset with a mask, in which some envs get a seed and others continue their random stream.
    seeds = [None, 3, None, 4, 5]
    mask = np.array([True, True, False, False, True])
    for env in (ours, theirs):
        env.reset(seed=seeds, options={"reset_mask": mask.copy()})
    for _ in range(3):
        actions = rng.integers(0, 145, n)
        assert data_equivalence(ours.step(actions), theirs.step(actions), exact=True)


def trajectory(env: NetworkDefenceVector, row: int, seed: int | list[int | None]) -> list[Any]:
    """Observations and rewards of one env of several over 60 steps, with the same actions for it in each call."""
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
def test_an_episode_depends_on_its_seed_and_not_on_other_games(red_agent: RedAgent) -> None:
    make: Callable[[int], Any] = partial(NetworkDefenceVector, red_agent=red_agent, max_steps=25)
    alone = trajectory(make(1), 0, 108)
    assert trajectory(make(30), 8, 100) == alone
    assert trajectory(make(3), 1, [7, 108, 7]) == alone
    assert trajectory(make(1), 0, 109) != alone
    assert alone[:25] != alone[25:50]  # episodes of one stream differ


def test_unseeded_envs_differ() -> None:
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
    assert (infos["final_info"]["true_state"] >= before).all()  # the defender does nothing
    assert (infos["final_info"]["true_state"][:, 7] == 2).any()
    assert (env.true_state().sum(axis=1) == 2).all()  # the foothold alone


def test_wrong_calls_of_the_vector_env_are_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'SameStep'"):
        NetworkDefenceVector(2, autoreset_mode="SameStop")
    with pytest.raises(ConfigError, match="render_mode='human': must be 'ansi'"):
        NetworkDefenceVector(2, render_mode="human")
    env = NetworkDefenceVector(2)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"one seed per env \(2; got 3\)"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(TypeError, match="reset_mask: must be a numpy array of bool"):
        env.reset(options={"reset_mask": [True, False]})
    with pytest.raises(ValueError, match=r"reset_mask: must have shape \(2,\)"):
        env.reset(options={"reset_mask": np.ones(3, np.bool_)})
    env.reset(seed=0)
    with pytest.raises(EnvError, match="one per env"):
        env.step(np.zeros(3, np.int64))
    single = NetworkDefence()
    with pytest.raises(gym.error.ResetNeeded):
        single.step(0)
    single.reset(seed=0)
    with pytest.raises(EnvError, match="from 0 to 144"):
        single.step(145)

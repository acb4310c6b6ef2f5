from __future__ import annotations

import logging
import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from paceline.domains.cyber.actions import HOSTS
from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError
from paceline.integrations.cyborg import CybORGEnv

Played = list[tuple[list[float], float, bool, list[int]]]
RESTORE_SERVER = 132 + HOSTS.index("Op_Server0")


def play(env: CybORGEnv, seed: int, steps: int = 40) -> Played:
    """Observations, rewards and true states of the first steps of an episode."""
    begun, _ = env.reset(seed=seed)
    seen: Played = [(begun.tolist(), 0.0, False, env.true_state().tolist())]
    for action in np.random.default_rng(seed).integers(0, 145, steps).tolist():
        obs, reward, _, truncated, _ = env.step(action)
        seen.append((obs.tolist(), reward, truncated, env.true_state().tolist()))
    return seen


@pytest.mark.filterwarnings("ignore:.*The environment .* is out of date")
def test_gymnasiums_env_checker_passes(standin: ModuleType) -> None:
    env = CybORGEnv(red_agent="meander", max_steps=20, render_mode="ansi")
    check_env(env, skip_render_check=True)
    seen, _ = env.reset(seed=3)
    assert seen.shape == (52,)
    assert not seen.any()
    assert env.action_space.n == 145  # type: ignore[attr-defined]


def test_an_episode_is_cut_at_max_steps_and_not_stepped_on(standin: ModuleType) -> None:
    env = CybORGEnv(max_steps=3)
    with pytest.raises(ResetNeeded, match="Reset it"):
        env.step(0)
    env.reset(seed=0)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    with pytest.raises(ResetNeeded, match=r"3 of max_steps=3"):
        env.step(0)
    env.reset(seed=0)
    env.step(0)


def test_an_episode_depends_on_its_seed_and_not_on_earlier_ones(standin: ModuleType) -> None:
    used, fresh = CybORGEnv(), CybORGEnv()
    play(used, 1)
    assert play(used, 2) == play(fresh, 2)
    assert play(used, 2) != play(used, 3)


def test_an_episode_equals_that_of_the_unmodified_simulator_after_random_seed(standin: ModuleType) -> None:
    env = CybORGEnv()
    random.seed(11)
    env._parts.enumerated.reset("Blue")
    stock = dict(env._parts.controller.state.ip_addresses)
    env.reset(seed=11)
    assert env._parts.controller.state.ip_addresses == stock


def test_the_true_state_is_an_extra_and_what_the_simulator_says(standin: ModuleType) -> None:
    env = CybORGEnv()
    env.reset(seed=1)
    extra = env.extras["true_state"]
    seen = set()
    for action in range(60):
        env.step(action % 15)
        read = getattr(env, extra.read)()
        assert (read.shape, read.dtype) == (extra.shape, np.dtype(extra.dtype))
        true = env._parts.cyborg.get_agent_state("True")
        names = [{session["Username"] for session in true[host]["Sessions"]} for host in HOSTS]
        assert read.tolist() == [2 if held & {"root", "SYSTEM"} else len(held) for held in names]
        seen |= set(read.tolist())
    assert seen == {0, 1, 2}


def test_returned_arrays_are_not_changed_by_later_steps(standin: ModuleType) -> None:
    env = CybORGEnv()
    env.reset(seed=1)
    before = env.true_state()
    kept = before.copy()
    for _ in range(30):
        env.step(0)
    assert not np.array_equal(env.true_state(), kept)
    assert np.array_equal(before, kept)


def test_training_accepts_it_as_an_import_path(standin: ModuleType) -> None:
    recipe = EnvRecipe(source="paceline.integrations.cyborg:CybORGEnv", kwargs={"red_agent": "sleep", "fast": "reward"})
    spec = recipe.probe()
    assert spec.obs[0].shape == (52,)
    with pytest.raises(ConfigError, match=r"unknown argument 'red'\. Did you mean 'red_agent'"):
        EnvRecipe(source="paceline.integrations.cyborg:CybORGEnv", kwargs={"red": "sleep"}).probe()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"red_agent": "blime"}, r"red_agent='blime': unknown\. Did you mean 'bline'"),
        ({"max_steps": 0}, r"max_steps=0: must be at least 1"),
        ({"fast": "reward,action"}, r"fast='action': no such acceleration\. Did you mean 'actions'"),
    ],
)
def test_wrong_settings_are_named(standin: ModuleType, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        CybORGEnv(**wrong)


def test_a_simulator_with_other_actions_is_refused(standin: Any) -> None:
    kinds = standin.BLUE_ACTIONS
    kinds[2], kinds[3] = kinds[3], kinds[2]
    with pytest.raises(ConfigError, match=r"action 2 must be Analyse Defender \(got Remove Defender\)"):
        CybORGEnv()
    del kinds[2]
    with pytest.raises(ConfigError, match=r"145 actions \(got 132\)"):
        CybORGEnv()


def test_it_logs_version_and_quirk_q1_once(standin: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="paceline"):
        CybORGEnv(max_steps=30)
        CybORGEnv()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("CybORG 2.1, commit unknown, rules of head, from ")
    assert "Q1" in said
    assert "max_steps=30" in said


def test_the_table_is_drawn_on_request(standin: ModuleType) -> None:
    env = CybORGEnv(render_mode="ansi")
    env.reset(seed=0)
    env.step(RESTORE_SERVER)
    assert "'PID'" in str(env.render())
    assert CybORGEnv().render() is None

"""The envs whose observation includes the workflow are the same game with 25 more numbers."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from paceline.domains.cyber.conditioned import WorkflowDefence, WorkflowDefenceVector
from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.workflow import WORKFLOWS, one_hot, orders_of, read_workflow, workflow_name
from paceline.envs.make import EnvRecipe
from paceline.errors import ConfigError

ONE = "op_server,enterprise,op_host,defender,user"
SOME = [workflow_name(WORKFLOWS[i]) for i in (0, 50, 119)]
ENV = "paceline/WorkflowDefence-v0"


def shown(obs: Any) -> list[str]:
    return [workflow_name(order) for order in orders_of(np.atleast_2d(obs)[:, 52:])]


def test_it_is_the_same_game_with_25_more_numbers_in_the_observation() -> None:
    plain, env = NetworkDefence(red_agent="meander"), WorkflowDefence(workflow=ONE, red_agent="meander")
    rng = np.random.default_rng(0)
    obs, expected = env.reset(seed=3)[0], plain.reset(seed=3)[0]
    for _ in range(100):
        assert env.observation_space.contains(obs)
        assert obs[:52].tolist() == expected.tolist()
        assert obs[52:].tolist() == one_hot(np.array([read_workflow(ONE)]))[0].tolist()
        action = rng.integers(145)
        obs, reward, _, truncated, _ = env.step(action)
        expected, plain_reward, _, plain_truncated, _ = plain.step(action)
        assert (reward, truncated) == (plain_reward, plain_truncated)
    assert truncated


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_vector_env_equals_single_envs(mode: AutoresetMode) -> None:
    n = 4
    settings: dict[str, Any] = {"workflow": SOME, "red_agent": "bline", "max_steps": 5}
    envs = WorkflowDefenceVector(n, autoreset_mode=mode, **settings)
    singles = [WorkflowDefence(**settings) for _ in range(n)]
    obs = envs.reset(seed=7)[0]
    expected = np.array([env.reset(seed=7 + i)[0] for i, env in enumerate(singles)])
    rng = np.random.default_rng(1)
    drawn = set(shown(obs))
    for _ in range(40):
        assert obs.tolist() == expected.tolist()
        action = rng.integers(145, size=n)
        obs, reward, _, truncated, infos = envs.step(action)
        steps = [env.step(action[i]) for i, env in enumerate(singles)]
        assert reward.tolist() == [step[1] for step in steps]
        expected = np.array([step[0] for step in steps])
        if truncated.any():
            fresh = np.array([env.reset()[0] for env in singles])
            if mode is AutoresetMode.SAME_STEP:
                assert [last.tolist() for last in infos["final_obs"]] == expected.tolist()
                expected = fresh
            elif mode is AutoresetMode.NEXT_STEP:
                assert obs.tolist() == expected.tolist()
                obs, expected = envs.step(action)[0], fresh
            else:
                obs, expected = envs.reset(options={"reset_mask": truncated})[0], fresh
            drawn |= set(shown(obs))
    assert drawn == set(SOME)


def test_it_is_registered_with_a_vector_version() -> None:
    recipe = EnvRecipe(source=ENV, kwargs={"workflow": ONE, "red_agent": "sleep"})
    assert recipe.use_native(50)
    spec = recipe.probe()
    assert spec.obs[0].shape == (77,)
    assert "true_state" in spec.extras
    vector = recipe.make_vector(3)
    assert shown(vector.reset(seed=0)[0]) == [ONE] * 3
    vector.close()
    assert gym.spec(ENV).vector_entry_point


@pytest.mark.parametrize(
    ("workflow", "said"), [([], "needs at least one workflow"), ("user", "each of the 5 types once")]
)
def test_a_bad_workflow_is_refused(workflow: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WorkflowDefence(workflow=workflow)

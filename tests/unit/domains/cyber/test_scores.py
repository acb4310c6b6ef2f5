"""Scores of defenders: rewards are read at several lengths of the same episodes, and do not depend on their number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline import PPO
from paceline.domains.cyber.actions import ACTIONS
from paceline.domains.cyber.scores import _SCORES, AT_ONCE, play, scores
from paceline.domains.cyber.training import PLAIN_ENV
from paceline.domains.cyber.vector import NetworkDefenceVector
from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import group_seed
from paceline.errors import ConfigError
from paceline.ops.distributions import head_for
from paceline.spec import PLAIN

RECIPE = EnvRecipe(source=PLAIN_ENV, kwargs={"red_agent": "bline", "max_steps": 12})


class Favourite:
    """An actor that prefers one action on all boards, and counts its calls."""

    def __init__(self, action: int) -> None:
        self.calls = 0
        self._params = np.zeros((AT_ONCE, ACTIONS), np.float32)
        self._params[:, action] = 50.0

    def __call__(self, obs: dict[str, NDArray[Any]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        assert obs[PLAIN].shape == (AT_ONCE, 52)
        self.calls += 1
        return self._params, np.zeros(AT_ONCE, np.float32)


def played(actor: Any, episodes: int, steps: tuple[int, ...] = (3, 12), **options: Any) -> NDArray[np.float64]:
    head = head_for(RECIPE.probe().action)
    return play(RECIPE, actor, head, episodes=episodes, steps=steps, seed=4, **options)


@pytest.mark.parametrize("action", [0, 132])
def test_rewards_are_those_of_the_env_summed_up_to_each_length(action: int) -> None:
    env = NetworkDefenceVector(AT_ONCE, red_agent="bline", max_steps=12)
    env.reset(seed=group_seed(4 ^ _SCORES, 0))
    rewards = np.array([env.step(np.full(AT_ONCE, action))[1] for _ in range(12)])
    expected = np.stack([rewards[:3].sum(0), rewards.sum(0)], axis=1)
    np.testing.assert_allclose(played(Favourite(action), AT_ONCE), expected)
    assert expected[:, 1].std() > 0 or action == 132


def test_episodes_do_not_depend_on_how_many_there_are() -> None:
    actor = Favourite(0)
    many = played(actor, AT_ONCE + 30)
    assert many.shape == (AT_ONCE + 30, 2)
    assert actor.calls == 2 * 12
    assert np.array_equal(played(Favourite(0), 7), many[:7])
    assert not np.array_equal(many[:30], many[AT_ONCE:])


def test_sampled_actions_differ_from_the_most_probable_ones() -> None:
    class Uniform(Favourite):
        def __init__(self) -> None:
            super().__init__(0)
            self._params[:] = 0.0

    sampled = played(Uniform(), AT_ONCE, deterministic=False)
    assert np.array_equal(sampled, played(Uniform(), AT_ONCE, deterministic=False))
    assert not np.array_equal(sampled, played(Uniform(), AT_ONCE))


def test_a_run_of_another_env_is_refused(tmp_path: Path) -> None:
    with PPO("CartPole-v1", n_envs=4, n_steps=8, num_workers=0, quiet=True) as agent:
        agent.save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"was trained on CartPole-v1\. Use paceline eval"):
        scores(tmp_path / "model", episodes=1)


@pytest.mark.parametrize(("settings", "error"), [({"episodes": 0}, "episodes=0"), ({"steps": (30, 0)}, "steps=0")])
def test_counts_must_be_positive(tmp_path: Path, settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        scores(tmp_path, **settings)

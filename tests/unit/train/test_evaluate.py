"""Evaluation: the same episodes in every call, none of training, and a limit to their length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.games import Cards, Coin, Counter, Drift

from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.nets.normalise import ObsNormaliser
from paceline.nets.policy import build_policy
from paceline.spec import EnvSpec
from paceline.train.evaluate import Evaluator, Predictor

SEEDS: list[int | None] = []


class Noting(Counter):
    """Keeps the seeds it is reset with."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        SEEDS.append(seed)
        return super().reset(seed=seed)


def predictor(spec: EnvSpec, normaliser: ObsNormaliser | None = None, seed: int = 0) -> Predictor:
    policy = build_policy("auto", spec, hidden_sizes=(8,), activation="tanh", seed=1)
    return Predictor(policy, spec, normaliser, seed=seed)


def evaluator(source: Any, *, seed: int = 3, **options: Any) -> Evaluator:
    recipe = EnvRecipe(source=source)
    return Evaluator(recipe, predictor(recipe.probe()), seed=seed, timeouts_s=(60.0, 60.0), **options)


def test_evaluations_play_the_same_episodes_and_none_of_training() -> None:
    it = evaluator(Noting)
    SEEDS.clear()
    it.evaluate(4)
    first = list(SEEDS)
    SEEDS.clear()
    it.evaluate(4)
    it.close()
    assert first == SEEDS
    assert len(set(first)) == 4
    training = {episode_seed(3, env, episode) for env in range(64) for episode in range(64)}
    assert not training & set(first)
    other = evaluator(Noting, seed=4)
    SEEDS.clear()
    other.evaluate(4)
    other.close()
    assert not set(first) & set(SEEDS)


def test_returns_and_lengths_are_those_of_the_episodes() -> None:
    it = evaluator(lambda: Counter(length=4))
    result = it.evaluate(3)
    it.close()
    assert result.lengths == (4, 4, 4)
    assert result.mean_ep_length == 4.0
    assert result.cut == 0
    # 10 * step + action, actions 0 to 2.
    assert all(60 <= total <= 68 for total in result.returns)
    assert result.mean_reward == pytest.approx(np.mean(result.returns))


def test_an_episode_that_never_ends_is_cut_off() -> None:
    it = evaluator(lambda: Counter(length=0), max_steps=17)
    result = it.evaluate(2)
    it.close()
    assert result.lengths == (17, 17)
    assert result.cut == 2


def test_the_mode_is_one_action_and_samples_are_several() -> None:
    spec = EnvRecipe(source=Coin).probe()
    predict = predictor(spec)
    obs = np.array([0.3, 0.7], np.float32)
    assert len({predict(obs) for _ in range(20)}) == 1
    assert {predict(obs, deterministic=False) for _ in range(50)} == {0, 1}
    one, other = predictor(spec, seed=5), predictor(spec, seed=5)
    draws = [[p(obs, deterministic=False) for _ in range(20)] for p in (one, other)]
    assert draws[0] == draws[1]


def test_masks_come_from_the_caller_and_are_kept() -> None:
    recipe = EnvRecipe(source=Cards)
    predict = predictor(recipe.probe())
    env = recipe.make()
    obs, info = env.reset(seed=0)
    for _ in range(5):
        action = predict(obs, mask=info["action_mask"], deterministic=False)
        obs, _, _, _, info = env.step(action)  # raises for an illegal card


def test_masks_inside_the_observation_are_used() -> None:
    space = spaces.Dict({"x": spaces.Box(-1, 1, (2,), np.float32), "action_mask": spaces.MultiBinary(3)})
    predict = predictor(EnvSpec.of(space, spaces.Discrete(3)))
    obs = {"x": np.zeros(2, np.float32), "action_mask": np.array([0, 0, 1], np.int8)}
    assert {predict(obs, deterministic=False) for _ in range(20)} == {2}


def test_actions_fit_the_space_of_the_env() -> None:
    spec = EnvRecipe(source=Drift).probe()
    predict = predictor(spec)
    action = predict(np.full(3, 50.0), deterministic=False)
    assert spec.action_space.contains(action)
    shifted = EnvSpec.of(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2, start=5))
    assert predictor(shifted)(np.zeros(1, np.float32)) in (5, 6)


def test_observations_are_normalised_as_in_training() -> None:
    spec = EnvRecipe(source=Drift).probe()
    normaliser = ObsNormaliser(spec)
    predict, plain = predictor(spec, normaliser), predictor(spec)
    obs = np.array([60.0, 40.0, 50.0])
    assert np.array_equal(predict(obs), plain(np.clip(obs, -10, 10))), "nothing seen yet: only cut"
    rows = np.random.default_rng(0).normal(50.0, 10.0, (100, 1, 3)).astype(np.float32)
    normaliser.update({"obs": rows})
    scaled = ((obs - rows.mean((0, 1))) / rows.std((0, 1))).astype(np.float32)
    np.testing.assert_allclose(predict(obs), plain(scaled), atol=1e-5)

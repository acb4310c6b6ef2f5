"""Evaluation: the same episodes in every call, none of training, and a limit to their length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from tests.games import Cards, Coin, Counter, Drift

from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError
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


LEAVES = spaces.Dict(
    {
        "hand": spaces.MultiBinary(5),
        "deep": spaces.Dict({"place": spaces.Box(-1, 1, (2, 3), np.float32), "turn": spaces.Discrete(6, start=2)}),
    }
)


@pytest.mark.parametrize(
    "observed",
    [LEAVES, spaces.Box(-1, 1, (4,), np.float64), spaces.Box(0, 255, (36, 36, 1), np.uint8), spaces.Discrete(5)],
    ids=["dict", "vector", "image", "discrete"],
)
@pytest.mark.parametrize(
    "acted",
    [spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3]), spaces.Box(-0.1, 0.1, (2,)), spaces.MultiBinary(4)],
    ids=["discrete", "multi_discrete", "box", "multi_binary"],
)
def test_a_batch_gets_the_actions_of_its_observations(observed: spaces.Space[Any], acted: spaces.Space[Any]) -> None:
    predict = predictor(EnvSpec.of(observed, acted))
    observed.seed(3)
    alone = [observed.sample() for _ in range(7)]
    stacked: Any = concatenate(observed, alone, create_empty_array(observed, 7))  # type: ignore[arg-type]
    for some in (7, 1, 7):
        batch = (
            {"hand": stacked["hand"][:some], "deep": {k: v[:some] for k, v in stacked["deep"].items()}}
            if isinstance(stacked, dict)
            else stacked[:some]
        )
        actions = predict(batch)
        assert actions.shape == (some, *(acted.shape or ()))
        np.testing.assert_allclose(actions, [predict(obs) for obs in alone[:some]], atol=1e-5)
        assert all(acted.contains(action) for action in predict(batch, deterministic=False))


@pytest.mark.parametrize("sizes", [[3], [2, 3]])
def test_a_batch_takes_a_mask_per_observation(sizes: list[int]) -> None:
    actions: Any = spaces.Discrete(3) if sizes == [3] else spaces.MultiDiscrete(sizes)
    predict = predictor(EnvSpec.of(spaces.Box(-1, 1, (2,)), actions, masked=True))
    only_last = np.array([[False] * (size - 1) + [True] for size in sizes[:1]] * 4)
    only_first = np.array([True, *[False] * (sizes[-1] - 1)])
    mask = only_last.copy() if len(sizes) == 1 else np.hstack([only_last, np.tile(only_first, (4, 1))])
    mask[0] = True
    acted = predict(np.zeros((4, 2)), mask=mask, deterministic=False)[1:]
    assert np.all(acted == ([2] if len(sizes) == 1 else [1, 0]))
    assert np.array_equal(predict(np.zeros(2), mask=mask[1]), acted[0])


def test_a_masked_env_without_a_mask_raises() -> None:
    predict = predictor(EnvRecipe(source=Cards).probe())
    obs, _ = Cards().reset(seed=0)
    with pytest.raises(ConfigError, match=r"masks its actions.*Write predict\(obs, mask=info\['action_mask'\]\)"):
        predict(obs)


@pytest.mark.parametrize(
    ("obs", "mask", "said"),
    [
        (np.zeros(3), None, r"must have the shape \(4,\), or \(n, 4\) for a batch \(got \(3,\)\)"),
        (np.zeros((2, 2, 4)), None, r"got \(2, 2, 4\)"),
        (np.zeros((0, 4)), None, r"got \(0, 4\)"),
        ((np.zeros(4), {}), None, r"the pair \(obs, info\) of env.reset\(\)"),
        ({"x": 1}, None, "has no usable 'obs'"),
        (np.zeros(4), [True], r"must have 2 entries per observation, one per action \(got shape \(1,\)\)"),
        (np.zeros((3, 4)), [True, True], r"got shape \(2,\)"),
    ],
)
def test_observations_and_masks_of_other_shapes_raise(obs: Any, mask: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        predictor(EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(2)))(obs, mask=mask)


def test_parts_of_a_batch_with_different_lengths_raise() -> None:
    both = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "y": spaces.Discrete(3)})
    with pytest.raises(ConfigError, match=r"the same length \(got x: \(5, 2\), y: \(4,\)\)"):
        predictor(EnvSpec.of(both, spaces.Discrete(2)))({"x": np.zeros((5, 2)), "y": np.zeros(4)})


def test_a_mask_of_actions_that_have_none_raises() -> None:
    with pytest.raises(ConfigError, match="mask= is for Discrete and MultiDiscrete actions, not Box"):
        predictor(EnvRecipe(source=Drift).probe())(np.zeros(3), mask=[True, True])


class Judged(Counter):
    """Judges two of three episodes: the first of them succeeds."""

    episodes = 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            Judged.episodes += 1
            info = {} if Judged.episodes % 3 == 0 else {"is_success": np.float32(Judged.episodes % 3 == 1)}
        return obs, reward, terminated, truncated, info


def test_the_success_rate_is_of_the_episodes_that_the_env_judged() -> None:
    assert evaluator(Judged).evaluate(6).success_rate == 0.5
    assert evaluator(Counter).evaluate(2).success_rate is None

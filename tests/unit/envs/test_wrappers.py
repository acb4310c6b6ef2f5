"""`FrameStack` and `OneOfVector`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tests.unit.envs.toys import ReusingEnv, SpaceEnv, Walk, walks

from paceline.envs.make import EnvRecipe
from paceline.envs.wrappers import FrameStack, OneOfVector
from paceline.errors import ConfigError


def test_vectors_are_joined_oldest_first() -> None:
    env = FrameStack(SpaceEnv(), 3)
    first, _ = env.reset(seed=0)
    second = env.step(0)[0]
    third = env.step(0)[0]
    shown = env.unwrapped.shown  # type: ignore[attr-defined]
    assert env.observation_space.shape == (9,)
    assert np.array_equal(first, np.concatenate([shown[0]] * 3))
    assert np.array_equal(second, np.concatenate([shown[0], shown[0], shown[1]]))
    assert np.array_equal(third, np.concatenate(shown[:3]))
    assert env.observation_space.contains(third)


def test_images_are_joined_by_channel() -> None:
    env = FrameStack(SpaceEnv(spaces.Box(0, 255, (6, 5, 3), np.uint8)), 4)
    env.reset(seed=0)
    obs = env.step(0)[0]
    shown = env.unwrapped.shown  # type: ignore[attr-defined]
    assert obs.shape == (6, 5, 12)
    assert obs.dtype == np.uint8
    assert np.array_equal(obs[..., 9:], shown[1])
    assert np.array_equal(obs[..., 6:9], shown[0])
    assert env.observation_space.contains(obs)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(5), spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(4), spaces.Box(-1, 1, (), np.float32)],
)
def test_other_spaces_are_stacked_too(space: spaces.Space[Any]) -> None:
    env = FrameStack(SpaceEnv(space), 2)
    env.reset(seed=3)
    obs = env.step(0)[0]
    assert env.observation_space.contains(obs)
    shown = env.unwrapped.shown  # type: ignore[attr-defined]
    assert np.array_equal(obs, np.concatenate([np.atleast_1d(one) for one in shown]))


def test_dicts_are_stacked_by_key_but_not_the_mask() -> None:
    inner = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "action_mask": spaces.MultiBinary(2)})
    env = FrameStack(SpaceEnv(inner), 2)
    obs, _ = env.reset(seed=0)
    assert obs["a"].shape == (4,)
    assert obs["action_mask"].shape == (2,)
    obs = env.step(0)[0]
    shown = env.unwrapped.shown  # type: ignore[attr-defined]
    assert np.array_equal(obs["a"], np.concatenate([shown[0]["a"], shown[1]["a"]]))
    assert np.array_equal(obs["action_mask"], shown[1]["action_mask"])


def test_stacked_frames_are_copies() -> None:
    env = FrameStack(ReusingEnv(), 3)
    env.reset(seed=0)
    kept = env.step(0)[0]
    obs = env.step(0)[0]
    assert obs.reshape(3, 3)[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert kept.reshape(3, 3)[:, 0].tolist() == [1.0, 1.0, 2.0]


def test_a_stack_has_no_frames_of_the_previous_episode() -> None:
    env = FrameStack(ReusingEnv(), 2)
    env.reset(seed=0)
    env.step(0)
    obs, _ = env.reset(seed=0)
    assert len(np.unique(obs)) == 1


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Discrete(3, start=2)])
def test_spaces_that_cannot_be_stacked_raise(space: spaces.Space[Any]) -> None:
    with pytest.raises(ConfigError, match="frame_stack=2"):
        FrameStack(SpaceEnv(space), 2)


def test_recipe_stacks_outside_the_wrappers() -> None:
    spec = EnvRecipe(
        source=lambda: SpaceEnv(spaces.Box(-1, 1, (2, 3), np.float32)),
        wrappers=("gymnasium.wrappers:FlattenObservation",),
        frame_stack=4,
    ).probe()
    assert spec.obs[0].shape == (24,)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("dict_obs", [False, True])
def test_one_of_vector_gives_the_episodes_of_the_single_env(mode: str, stacked: bool, dict_obs: bool) -> None:
    alone, one = Walk(dict_obs), OneOfVector(walks(1, mode, stacked, dict_obs=dict_obs))
    for seed in range(8):
        pairs = [(alone.reset(seed=seed), one.reset(seed=seed))]
        over = False
        while not over:
            pairs.append((alone.step(0), one.step(0)))  # type: ignore[arg-type]
            over = bool(pairs[-1][0][2] or pairs[-1][0][3])  # type: ignore[misc]
            assert pairs[-1][0][1:4] == pairs[-1][1][1:4]
        for ours, theirs in pairs:
            np.testing.assert_equal(theirs[0], ours[0])
    one.close()

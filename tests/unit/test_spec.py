"""`EnvSpec`: leaves and actions of gymnasium spaces, and errors for unsupported spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from paceline.errors import ConfigError
from paceline.spec import EnvSpec, Extra, Shaping

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)


@pytest.mark.parametrize(
    ("space", "kind", "shape", "dtype", "features"),
    [
        (BOX, "vector", (3,), np.float32, 3),
        (spaces.Box(-1.0, 1.0, (2, 3), np.float64), "vector", (2, 3), np.float32, 6),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "image", (8, 8, 3), np.uint8, 192),
        (spaces.Box(0, 255, (8, 8), np.uint8), "vector", (8, 8), np.uint8, 64),
        (spaces.Discrete(4, start=2), "categorical", (), np.int64, 4),
        (spaces.MultiDiscrete([3, 2]), "multi_categorical", (2,), np.int64, 5),
        (spaces.MultiBinary((2, 2)), "binary", (2, 2), np.int8, 4),
    ],
)
def test_leaf_of_a_space(space: Any, kind: str, shape: tuple[int, ...], dtype: Any, features: int) -> None:
    (leaf,) = EnvSpec.of(space, spaces.Discrete(2)).obs
    assert (leaf.name, leaf.kind, leaf.shape, leaf.dtype, leaf.features) == ("obs", kind, shape, dtype, features)


def test_nested_dicts_are_flattened_and_split_without_the_mask() -> None:
    space = spaces.Dict({"b": spaces.Dict({"c": BOX}), "a": spaces.Discrete(3), "action_mask": spaces.MultiBinary(2)})
    spec = EnvSpec.of(space, spaces.Discrete(2))
    assert spec.masked
    assert spec.dict_obs
    assert [leaf.name for leaf in spec.obs] == ["a", "b/c"]
    obs = {"a": 1, "b": {"c": np.ones(3)}, "action_mask": np.ones(2)}
    assert spec.split(obs) == {"a": 1, "b/c": obs["b"]["c"]}  # type: ignore[index]
    assert EnvSpec.of(BOX, spaces.Discrete(2)).split(7) == {"obs": 7}


@pytest.mark.parametrize(
    ("space", "kind", "params", "noise", "mask"),
    [
        (spaces.Discrete(3, start=-1), "categorical", 3, 3, 3),
        (spaces.MultiDiscrete([3, 2]), "multi_categorical", 5, 5, 5),
        (spaces.MultiBinary(4), "bernoulli", 4, 4, 0),
        (spaces.Box(-1.0, 2.0, (2,), np.float64), "gaussian", 4, 2, 0),
    ],
)
def test_action_of_a_space(space: Any, kind: str, params: int, noise: int, mask: int) -> None:
    action = EnvSpec.of(BOX, space).action
    assert (action.kind, action.param_size, action.noise_size, action.mask_size) == (kind, params, noise, mask)
    assert action.start == getattr(space, "start", 0) if kind == "categorical" else action.start == 0
    if kind == "gaussian":
        assert action.low is not None
        assert action.low.dtype == np.float32


@pytest.mark.parametrize(
    ("obs", "action", "masked", "text"),
    [
        (spaces.Text(3), spaces.Discrete(2), False, "observation 'obs': Text is not supported"),
        (spaces.MultiDiscrete([2], start=[1]), spaces.Discrete(2), False, "must start at zero"),
        (spaces.Dict({"action_mask": spaces.MultiBinary(2)}), spaces.Discrete(2), False, "only an action mask"),
        (BOX, spaces.MultiDiscrete(np.array([[2, 2]])), False, "must be one-dimensional"),
        (BOX, spaces.Box(0, 3, (2,), np.int64), False, "not supported"),
        (BOX, spaces.Box(0, 1, (0,), np.float32), False, "is empty"),
        (BOX, spaces.MultiBinary(2), True, "action_mask: supported only for Discrete and MultiDiscrete"),
    ],
)
def test_unsupported_spaces_raise(obs: Any, action: Any, masked: bool, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EnvSpec.of(obs, action, masked=masked)


def test_reward_parts_begin_with_the_envs_own_reward() -> None:
    spec = EnvSpec.of(BOX, spaces.Discrete(2))
    assert spec.reward_parts == ()
    assert Shaping(("bonus",), ("distance",)).reward_parts == ("env_reward", "bonus", "distance")


@pytest.mark.parametrize(("every", "dtype"), [(0, "float32"), ("week", "float32"), (1, "floaty")])
def test_invalid_extras_raise(every: Any, dtype: str) -> None:
    with pytest.raises(ConfigError, match="extra:"):
        Extra(every=every, dtype=dtype)

"""Conversions between stored and env form: `ActionMap`, `ObsMap`, and the checks that all blocks share."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tests.unit.envs.toys import SpaceEnv

from paceline.envs.block import ActionMap, History, ObsMap, pickled, require_distinct, require_same_spaces
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.spec import EnvSpec

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
NESTED = spaces.Dict({"a": BOX, "b": spaces.Dict({"c": spaces.Discrete(3)}), "action_mask": spaces.MultiBinary(2)})


def action_map(space: spaces.Space[Any]) -> ActionMap:
    return ActionMap(EnvSpec.of(BOX, space))


def test_categories_are_shifted_to_the_start_of_the_space() -> None:
    assert action_map(spaces.Discrete(3, start=5)).each(np.array([0, 2])) == [5, 7]
    assert all(type(action) is int for action in action_map(spaces.Discrete(3)).each(np.array([0, 2])))


def test_box_actions_are_clipped_to_the_bounds_and_have_the_dtype_of_the_space() -> None:
    space = spaces.Box(np.array([-1.0, 0.0]), np.array([0.1, np.inf]), dtype=np.float64)
    stored = np.array([[-3.0, -3.0], [0.5, 7.0]], np.float32)
    batch = action_map(space).batch(stored)
    assert batch.dtype == np.float64
    assert batch.tolist() == [[-1.0, 0.0], [0.1, 7.0]]
    assert all(space.contains(action) for action in action_map(space).each(stored))
    assert not np.shares_memory(batch, stored)


def test_an_action_of_a_scalar_box_is_an_array() -> None:
    (action,) = action_map(spaces.Box(-1.0, 1.0, (), np.float32)).each(np.array([0.5], np.float32))
    assert isinstance(action, np.ndarray)
    assert action.shape == ()


def test_leaves_are_written_and_copied_in_their_stored_dtype() -> None:
    spec = EnvSpec.of(NESTED, spaces.Discrete(2))
    obs = {"a": np.array([0.5, 1.0], np.float64), "b": {"c": 2}, "action_mask": np.array([1, 0], np.int8)}
    row = Row.blank(spec, 3)
    convert = ObsMap(spec)
    convert.write(obs, 1, row.obs)
    assert row.obs["a"].tolist() == [[0, 0], [0.5, 1], [0, 0]]
    assert row.obs["b/c"].tolist() == [0, 2, 0]
    copy = convert.copy(obs)
    assert {name: leaf.dtype for name, leaf in copy.items()} == {leaf.name: leaf.dtype for leaf in spec.obs}
    assert convert.mask(obs, {}).tolist() == [1, 0]


def test_masks_of_several_components_may_be_a_tuple_or_a_batch_of_lists() -> None:
    convert = ObsMap(EnvSpec.of(BOX, spaces.MultiDiscrete([2, 3]), masked=True))
    parts = (np.array([1, 0]), np.array([0, 1, 1]))
    assert convert.mask(None, {"action_mask": parts}).tolist() == [1, 0, 0, 1, 1]
    batch = np.empty(2, object)
    batch[0] = [[1, 0], [0, 1, 1]]
    assert convert.mask(None, {"action_mask": batch}, (2,)).tolist() == [[1, 0, 0, 1, 1], [0] * 5]


@pytest.mark.parametrize(
    ("obs", "info", "text"),
    [
        (np.zeros(3), {"action_mask": [1, 1]}, r"must be float32 of shape \(2,\)"),
        (np.zeros(2, complex), {"action_mask": [1, 1]}, "got complex128"),
        (np.zeros(2), {}, "info has no 'action_mask'"),
        (np.zeros(2), {"action_mask": [1, 1, 1]}, "must have 2 entries"),
    ],
)
def test_observations_and_masks_that_do_not_match_the_spaces_raise(obs: Any, info: Any, text: str) -> None:
    convert = ObsMap(EnvSpec.of(BOX, spaces.Discrete(2), masked=True))
    with pytest.raises(EnvError, match=f"env 3.*{text}"):
        convert.check(obs, info, "env 3")
    convert.check(np.zeros(2), {"action_mask": [0, 1]}, "env 3")


def test_every_component_needs_a_legal_action() -> None:
    convert = ObsMap(EnvSpec.of(BOX, spaces.MultiDiscrete([2, 3]), masked=True))
    fine = np.array([[1, 0, 0, 0, 1]], np.bool_)
    convert.check_legal(fine, 7)
    with pytest.raises(EnvError, match=r"env 8: action_mask allows no action \(\[1, 1, 0, 0, 0\]\)"):
        convert.check_legal(np.concatenate([fine, np.array([[1, 1, 0, 0, 0]], np.bool_)]), 7)


def test_a_history_writes_its_observation_and_mask_to_a_row() -> None:
    spec = EnvSpec.of(BOX, spaces.Discrete(2), masked=True)
    row = Row.blank(spec, 2)
    History(0, np.empty(0), {"obs": np.array([0.5, 1.0])}, np.array([True, False])).show(1, row)
    assert row.obs["obs"].tolist() == [[0, 0], [0.5, 1]]
    assert row.mask is not None
    assert row.mask.tolist() == [[False, False], [True, False]]


def test_the_same_env_twice_raises_also_inside_wrappers() -> None:
    env = SpaceEnv()
    require_distinct([env, SpaceEnv()])
    with pytest.raises(ConfigError, match="the same env twice"):
        require_distinct([env, gym.wrappers.TimeLimit(env, 5)])


def test_an_env_with_other_spaces_raises() -> None:
    spec = EnvSpec.of(BOX, spaces.Discrete(2))
    require_same_spaces(EnvSpec.of(spaces.Box(-9.0, 9.0, (2,), np.float32), spaces.Discrete(2)), spec, "env 1")
    for other in (EnvSpec.of(BOX, spaces.Discrete(2, start=1)), EnvSpec.of(BOX, spaces.Discrete(3))):
        with pytest.raises(EnvError, match="env 1: its spaces"):
            require_same_spaces(other, spec, "env 1")


def test_an_env_that_cannot_be_pickled_raises() -> None:
    env = SpaceEnv()
    assert isinstance(pickled(env, "env 0"), bytes)
    env.generator = (i for i in range(3))  # type: ignore[attr-defined]
    with pytest.raises(EnvError, match=r"env 0: cannot be pickled .*--trust-env-state"):
        pickled(env, "env 0")

"""Leaves of nested spaces: splitting, batching, and errors for values that do not match."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import batch_space, iterate
from hypothesis import given, settings
from tests.unit.vector.toys import SPACES, SampleEnv

from paceline import make_vec
from paceline.errors import EnvError
from paceline.vector.leaves import SpaceLeaves, obs_writer


def test_parts_of_actions() -> None:
    vec = make_vec(partial(SampleEnv, None, spaces.Dict({"a": spaces.Discrete(2), "t": spaces.Text(3)})), 2, 0)
    vec.reset(seed=0)
    for wrong in (
        {"a": [0, 1]}, [0, 1], {"a": [0, 1], "t": ("x",)}, [{"a": 0}, {"a": 1}], [{"a": 0, "t": "x"}],
    ):  # fmt: skip
        with pytest.raises(ValueError, match="actions"):
            vec.step(wrong)
    vec.close()


@pytest.mark.parametrize(
    ("space", "each", "batch"),
    [
        (
            spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,)), "t": spaces.Text(3)}),
            [{"a": i, "b": np.full(2, i / 2, np.float32), "t": "x" * i} for i in (1, 2)],
            {"a": [1, 2], "b": [[0.5, 0.5], [1.0, 1.0]], "t": ["x", "xx"]},
        ),
        (
            spaces.Tuple((spaces.Discrete(3), spaces.Dict({"b": spaces.MultiBinary(2)}))),
            [(1, {"b": [0, 1]}), (2, {"b": [1, 1]})],
            ([1, 2], {"b": [[0, 1], [1, 1]]}),
        ),
    ],
)
def test_a_list_of_actions_is_the_same_as_their_batch(space: Any, each: list[Any], batch: Any) -> None:
    results: list[Any] = []
    for actions in (each, batch):
        vec = make_vec(partial(SampleEnv, None, space), 2, 0)
        vec.reset(seed=0)
        results.append(vec.step(actions))
        vec.close()
    assert data_equivalence(results[0], results[1], exact=True)


def same(one: Any, other: Any) -> bool:
    """Compare values; a scalar may be an array or a number."""
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in other)
    if isinstance(other, tuple):
        return isinstance(one, tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, np.ndarray | np.generic):
        return bool(np.array_equal(one, other))
    return bool(data_equivalence(one, other))


@given(space=SPACES)
@settings(max_examples=50, deadline=None)
def test_a_batch_splits_into_its_elements_and_observations_are_written_whole(space: spaces.Space[Any]) -> None:
    leaves = SpaceLeaves.of(space, "obs")
    memory = {field.name: np.zeros(field.shape, field.dtype) for field in leaves.fields(3)}
    arrays = leaves.arrays(memory, 0, 3)
    write = obs_writer(leaves, arrays)
    samples = [space.sample() for _ in range(3)]
    loose = [write(at, sample) for at, sample in enumerate(samples)]
    columns: dict[Any, Any] = {path: list(array) for path, array in arrays.items()}
    columns |= {path: [parts[i] for parts in loose] for i, path in enumerate(leaves.loose)}
    for sample, element in zip(samples, iterate(batch_space(space, 3), leaves.batch(columns.__getitem__)), strict=True):
        assert same(element, sample)


@pytest.mark.parametrize(
    ("obs", "text"),
    [
        (np.zeros(2, np.float32), r"must be float32 of shape \(3,\)"),
        (np.zeros(3, np.complex64), "got complex64"),
    ],
)
def test_an_observation_that_does_not_match_its_space_raises(obs: Any, text: str) -> None:
    leaves = SpaceLeaves.of(spaces.Box(-1.0, 1.0, (3,), np.float32), "obs")
    with pytest.raises(EnvError, match=text):
        obs_writer(leaves, {(): np.zeros((2, 3), np.float32)})(0, obs)


def test_a_missing_part_of_an_observation_raises() -> None:
    leaves = SpaceLeaves.of(spaces.Dict({"a": spaces.Discrete(2), "t": spaces.Text(3)}), "obs")
    with pytest.raises(EnvError, match="a part of its observation_space is missing"):
        obs_writer(leaves, {("a",): np.zeros(2, np.int64)})(0, {"a": 1})

"""Invalid arguments of a vector env's methods raise a named error and leave the vector env usable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.unit.vector.toys import SampleEnv

from paceline import ParallelVectorEnv, make_vec
from paceline.vector.requests import env_indices


@pytest.fixture
def vec() -> Iterator[ParallelVectorEnv]:
    vec = make_vec(SampleEnv, 3, 0)
    yield vec
    vec.close()


@pytest.mark.parametrize(
    ("actions", "ids", "text"),
    [
        (np.zeros(2, np.int64), None, r"must have shape \(3,\)"),
        (np.zeros((3, 1), np.int64), None, r"got \(3, 1\)"),
        (np.zeros(3, np.float32), None, "must be int64 .got float32"),
        (np.zeros(2, np.int64), [0, 0], "must not repeat"),
        (np.zeros(1, np.int64), [3], "must be between 0 and 2"),
        (np.zeros(1, np.int64), [-1], "must be between 0 and 2"),
        (np.zeros(1, np.int64), [0.5], "list of env indices"),
        (np.zeros(1, np.int64), [], "list of env indices"),
    ],
)
def test_actions_and_ids(vec: ParallelVectorEnv, actions: Any, ids: Any, text: str) -> None:
    vec.reset(seed=0)
    with pytest.raises(ValueError, match=text):
        vec.send(actions, ids)
    vec.step([0, 1, 2])


def test_seeds_and_masks(vec: ParallelVectorEnv) -> None:
    with pytest.raises(ValueError, match=r"one seed per env \(3; got 2\)"):
        vec.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="array of bool"):
        vec.reset(options={"reset_mask": [True, False, True]})
    for mask in (np.zeros(3, np.bool_), np.ones(2, np.bool_)):
        with pytest.raises(ValueError, match="select at least one env"):
            vec.reset(options={"reset_mask": mask})


def test_envs_are_addressed_like_the_entries_of_a_list() -> None:
    assert env_indices([0, -1, -3, 1], 3) == [0, 2, 0, 1]
    for wrong in (3, -4):
        with pytest.raises(IndexError, match=rf"must be from -3 to 2, because there are 3 envs \(got {wrong}\)"):
            env_indices([wrong], 3)

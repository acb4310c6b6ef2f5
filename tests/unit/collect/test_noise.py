"""Action noise depends on seed, group and step only."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.collect.noise import draw, generator
from paceline.ops.distributions import ActionHead, head_for
from paceline.spec import EnvSpec

SPACES = [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4), spaces.Box(-1, 1, (2,), np.float32)]


def head(space: spaces.Space[Any]) -> tuple[ActionHead, int]:
    action = EnvSpec.of(spaces.Box(-1, 1, (1,), np.float32), space).action
    return head_for(action), action.noise_size


def noise(space: spaces.Space[Any], first: int, groups: int, *, seed: int = 3, step: int = 64) -> NDArray[np.float32]:
    distribution, size = head(space)
    out = np.full((5, groups * 2, size), np.nan, np.float32)
    draw(distribution, out, seed=seed, first_group=first, group_size=2, step=step)
    return out


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_noise_of_a_group_does_not_depend_on_its_worker(space: spaces.Space[Any]) -> None:
    together = noise(space, 0, 6)
    assert np.isfinite(together).all()
    for cuts in [(0, 1, 6), (0, 3, 6), (0, 2, 3, 6)]:
        parts = [noise(space, first, last - first) for first, last in pairwise(cuts)]
        assert np.concatenate(parts, 1).tobytes() == together.tobytes()


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_envs_steps_groups_and_seeds_draw_different_noise(space: spaces.Space[Any]) -> None:
    base = noise(space, 0, 2)
    rows = base.reshape(-1, base.shape[-1])
    assert len(np.unique(rows, axis=0)) == len(rows), "two envs or two steps share their noise"
    for other in (noise(space, 2, 2), noise(space, 0, 2, seed=4), noise(space, 0, 2, step=69)):
        assert not np.isin(other, base).any()


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**21), st.integers(0, 2**40))
def test_streams_are_reached_at_once_and_differ(seed: int, group: int, step: int) -> None:
    first = generator(seed, group, step).random(4)
    assert first.tolist() == generator(seed, group, step).random(4).tolist()
    for other in (generator(seed ^ 1, group, step), generator(seed, group + 1, step), generator(seed, group, step + 1)):
        assert not np.isin(other.random(4), first).any()

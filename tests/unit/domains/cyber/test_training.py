"""From the options of `paceline cyber` to a TrainConfig."""

from __future__ import annotations

import pytest

from paceline.domains.cyber.training import group_size


@pytest.mark.parametrize(("n_envs", "size"), [(100, 50), (64, 32), (32, 16), (25, 25), (51, 17), (8, None), (17, 17)])
def test_groups_are_large_enough_for_vector_envs_and_two_if_possible(n_envs: int, size: int | None) -> None:
    assert group_size(n_envs) == size

"""Groups of envs, and how many envs workers need."""

from __future__ import annotations

import re

import pytest

from paceline.config.groups import default_group_size, divisors, enough_envs
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError


def test_divisors_are_all_and_in_order() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(1) == [1]
    assert divisors(7) == [1, 7]


@pytest.mark.parametrize(("n_envs", "vector", "image"), [(32, 4, 8), (8, 1, 4), (7, 1, 1), (100, 5, 5), (2, 1, 1)])
def test_the_default_size_leaves_enough_groups(n_envs: int, vector: int, image: int) -> None:
    assert default_group_size(n_envs, image=False) == vector
    assert default_group_size(n_envs, image=True) == image


def test_no_number_of_envs_is_named_if_none_fits() -> None:
    assert enough_envs(3, 2, None, fits=lambda _: False) is None


@pytest.mark.parametrize(
    "settings", [{}, {"batch_size": 256}, {"batch_size": 8000}, {"group_size": 4}, {"algo": "dqn"}]
)
@pytest.mark.parametrize("n_envs", [4, 32, 60])
@pytest.mark.parametrize("workers", [5, 9, 12, 16, 33, 46, 61, 100])
def test_advice_about_too_many_workers_can_be_followed(workers: int, n_envs: int, settings: dict[str, object]) -> None:
    try:
        TrainConfig.from_flat(env="X-v0", num_workers=workers, n_envs=n_envs, **settings)
        return
    except ConfigError as error:
        text = str(error)
    fewer = re.search(r"Use num_workers=(\d+)", text)
    assert fewer is not None
    TrainConfig.from_flat(env="X-v0", num_workers=fewer[1], n_envs=n_envs, **settings)
    of_images = re.search(r"\((\d+) for images\)", text)
    few = TrainConfig.from_flat(env="X-v0", num_workers=(of_images or fewer)[1], n_envs=n_envs, **settings)
    few.check_groups(image=True)
    other = re.search(r"or (group_size|n_envs)=(\d+)", text)
    assert other is not None or settings.get("batch_size") == 8000
    if other is not None:
        followed = {"n_envs": n_envs, **settings, other[1]: other[2]}
        TrainConfig.from_flat(env="X-v0", num_workers=workers, **followed).check_groups(image=True)

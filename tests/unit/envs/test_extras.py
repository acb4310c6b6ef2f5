"""Extras in every kind of env block."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.simulator import EXTRAS, Simulator
from tests.unit.envs.simulators import run
from tests.unit.envs.toys import of_groups

from paceline.envs.extras import Extra, named_extras
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row

N, ROWS = 6, 40


def test_extras_in_a_row_belong_to_the_observation_of_that_row(make: Any) -> None:
    block, spec = make
    envs = block()
    rows = run(envs, spec)
    ends = 0
    for row, after in pairwise(rows):
        place, age = after.extras["true_state"].T
        assert (np.sign(place) == after.obs["obs"][:, 0]).all()
        assert (after.extras["seen"] == place).all()
        ended = (row.terminated | row.truncated) & row.valid
        ends += ended.sum()
        went_on = ~ended & row.valid
        assert (age[went_on] == row.extras["true_state"][went_on, 1] + 1).all()
        due = (age % 3 == 0) & went_on
        assert (after.extras["rarely"][due] == age[due]).all()
        stands = (age % 3 != 0) & went_on
        assert (after.extras["rarely"][stands] == row.extras["rarely"][stands]).all()
        length = row.extras["true_state"][:, 1] + 1
        assert (after.extras["at_the_end"][ended] == length[ended]).all()
        assert (after.extras["at_the_end"][went_on] == row.extras["at_the_end"][went_on]).all()
    assert ends > 10
    envs.close()


def test_extras_are_found_through_wrappers() -> None:
    wrapped = gym.wrappers.TimeLimit(Simulator(), 5)
    assert named_extras(wrapped) == EXTRAS
    assert EnvRecipe(source=Simulator, frame_stack=2).probe().extras == EXTRAS
    assert EnvRecipe(source="CartPole-v1").probe().extras == {}


def naming(**extras: Extra) -> type[Simulator]:
    return type("Naming", (Simulator,), {"extras": extras})


def begin_one(env: type[Simulator]) -> None:
    recipe = EnvRecipe(source=env)
    spec = recipe.probe()
    block = make_block(of_groups(recipe, spec))
    block.reset(Row.blank(spec, 1))


@pytest.mark.parametrize(
    ("extra", "error", "words"),
    [
        (
            {"true_state": Extra(shape=(3,), read="true_state")},
            EnvError,
            r"must be float32 of shape \(3,\)",
        ),
        ({"unheard_of": Extra()}, EnvError, "extra 'unheard_of': not in the info dict"),
        ({"x": Extra(read="true_stat")}, ConfigError, "has no method 'true_stat'"),
    ],
)
def test_an_extra_that_cannot_be_read_is_named(extra: dict[str, Extra], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        begin_one(naming(**extra))

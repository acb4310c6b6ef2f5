"""`make_block` chooses native vector envs, threads or single envs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from tests.unit.envs.toys import WALK, SpaceEnv, blank_row, of_groups

from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.envs.native import VectorEnvs
from paceline.envs.seeding import episode_seed
from paceline.envs.threaded import ThreadedEnvs


def test_make_block_chooses_by_recipe_and_group_size() -> None:
    spec = EnvRecipe(source=WALK).probe()
    for native, size, kind in (("auto", 4, SingleEnvs), ("auto", 16, VectorEnvs), ("always", 4, VectorEnvs)):
        recipe = EnvRecipe(source=WALK, native_vector=native)  # type: ignore[arg-type]
        setup = of_groups(recipe, spec, first_group=3, groups=2, group_size=size)
        block = make_block(setup)
        assert isinstance(block, kind)
        assert block.episode is setup.episode
        block.reset(blank_row(spec, 2 * size))
        block.close()


def test_make_block_numbers_envs_by_group() -> None:
    made: list[SpaceEnv] = []

    def make() -> gym.Env[Any, Any]:
        made.append(SpaceEnv())
        return made[-1]

    recipe = EnvRecipe(source=make)
    spec = recipe.probe()
    block = make_block(of_groups(recipe, spec, seed=1, first_group=5, groups=2, group_size=4))
    block.reset(blank_row(spec, 8))
    assert [env.seeds[0] for env in made[1:]] == [episode_seed(1, 20 + i, 0) for i in range(8)]


@pytest.mark.parametrize(("threads", "kind"), [(1, SingleEnvs), (4, ThreadedEnvs)])
def test_make_block_makes_threads_if_asked(threads: int, kind: type[Any]) -> None:
    recipe = EnvRecipe(source=SpaceEnv)
    block = make_block(of_groups(recipe, recipe.probe(), groups=3), threads)
    assert isinstance(block, kind)
    block.close()
    alone = make_block(of_groups(recipe, recipe.probe()), threads)
    assert isinstance(alone, SingleEnvs), "a single env needs no thread"
    alone.close()


def test_native_vector_envs_get_no_threads() -> None:
    recipe = EnvRecipe(source=WALK, native_vector="always")
    block = make_block(of_groups(recipe, recipe.probe(), groups=2, group_size=2), 4)
    assert isinstance(block, VectorEnvs)
    block.close()

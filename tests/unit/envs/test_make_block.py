"""`make_block` chooses native vector envs, threads or single envs, and tries a temporary env for `auto` threads."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from tests.unit.envs.toys import WALK, SpaceEnv, blank_row, of_groups

from paceline.envs import make_block as module
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import EnvThreads, make_block, wait_s
from paceline.envs.native import VectorEnvs
from paceline.envs.seeding import episode_seed
from paceline.envs.step_cost import StepCost
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


@pytest.mark.parametrize(
    ("threads", "waiting", "kind"),
    [
        (1, True, SingleEnvs),
        (4, False, ThreadedEnvs),
        ("auto", True, ThreadedEnvs),
        ("auto", False, SingleEnvs),
    ],
)
def test_make_block_makes_threads_if_asked_or_if_envs_wait(
    threads: EnvThreads, waiting: bool, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "wait_s", lambda *args, **kwargs: 0.01 * waiting)
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


@pytest.mark.parametrize("fails", [{"step"}, {"__init__"}, {"close"}, set()], ids=str)
def test_an_env_that_fails_in_the_trial_counts_as_computing(fails: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(SpaceEnv):
        def __init__(self) -> None:
            super().__init__()
            self._fail("__init__")

        def step(self, action: Any) -> Any:
            self._fail("step")
            return super().step(action)

        def close(self) -> None:
            super().close()
            self._fail("close")

        def _fail(self, where: str) -> None:
            if where in fails:
                raise RuntimeError(where)

    monkeypatch.setattr(StepCost, "waits", property(lambda cost: cost.wall_s > 0))
    monkeypatch.setattr(StepCost, "wait_s", property(lambda cost: cost.wall_s))
    assert (wait_s(EnvRecipe(source=Fails), seed=3) > 0) is (not fails)


def test_the_trial_uses_an_env_and_a_seed_of_its_own() -> None:
    made: list[SpaceEnv] = []

    def make() -> gym.Env[Any, Any]:
        made.append(SpaceEnv())
        return made[-1]

    recipe = EnvRecipe(source=make)
    spec = recipe.probe()
    block = make_block(of_groups(recipe, spec, seed=1, groups=4), "auto")
    block.reset(blank_row(spec, 4))
    trial, *ours = made[1:]
    assert trial.closed == 1
    assert [env.seeds for env in ours] == [[episode_seed(1, i, 0)] for i in range(4)]
    assert not any(env.taken for env in ours)
    assert trial.seeds[0] not in [env.seeds[0] for env in ours]
    block.close()

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tests.unit.envs.toys import WALK, SpaceEnv, blank_row

from paceline.envs import make_block as module
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import EnvThreads, make_block, wait_s
from paceline.envs.native import VectorEnvs
from paceline.envs.seeding import episode_seed
from paceline.envs.threaded import ThreadedEnvs


def test_make_block_chooses_by_recipe_and_group_size() -> None:
    spec = EnvRecipe(source=WALK).probe()
    for native, size, kind in (("auto", 4, SingleEnvs), ("auto", 16, VectorEnvs), ("always", 4, VectorEnvs)):
        recipe = EnvRecipe(source=WALK, native_vector=native)  # type: ignore[arg-type]
        episode = np.zeros(2 * size, np.int64)
        block = make_block(recipe, spec, seed=0, first_group=3, groups=2, group_size=size, episode=episode)
        assert isinstance(block, kind)
        assert block.episode is episode
        block.reset(blank_row(spec, 2 * size))
        block.close()


def test_make_block_numbers_envs_by_group() -> None:
    made: list[SpaceEnv] = []

    def make() -> gym.Env[Any, Any]:
        made.append(SpaceEnv())
        return made[-1]

    recipe = EnvRecipe(source=make)
    spec = recipe.probe()
    block = make_block(recipe, spec, seed=1, first_group=5, groups=2, group_size=4, episode=np.zeros(8, np.int64))
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
def test_make_block_threads_as_asked_or_as_envs_wait(
    threads: EnvThreads, waiting: bool, kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "wait_s", lambda *args, **kwargs: 0.01 * waiting)
    recipe = EnvRecipe(source=SpaceEnv)
    args: dict[str, Any] = {"seed": 0, "first_group": 0, "group_size": 1, "threads": threads}
    block = make_block(recipe, recipe.probe(), groups=3, episode=np.zeros(3, np.int64), **args)
    assert isinstance(block, kind)
    block.close()
    alone = make_block(recipe, recipe.probe(), groups=1, episode=np.zeros(1, np.int64), **args)
    assert isinstance(alone, SingleEnvs), "one env has nobody to wait beside"
    alone.close()


def test_vector_envs_never_thread() -> None:
    recipe = EnvRecipe(source=WALK, native_vector="always")
    args: dict[str, Any] = {"seed": 0, "first_group": 0, "groups": 2, "group_size": 2}
    block = make_block(recipe, recipe.probe(), episode=np.zeros(4, np.int64), threads=4, **args)
    assert isinstance(block, VectorEnvs)
    block.close()


class Sleeps(SpaceEnv):
    def step(self, action: Any) -> Any:
        time.sleep(2e-3)
        return super().step(action)


class Picky(Sleeps):
    """Only its last action is legal, and it checks."""

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.array([0, 1], np.int8)}

    def step(self, action: Any) -> Any:
        if action != 1:
            raise ValueError("illegal")
        return super().step(action)


class PickyTwice(Picky):
    def __init__(self) -> None:
        super().__init__(action_space=spaces.MultiDiscrete([2, 3]))

    def info(self) -> dict[str, Any]:
        return {"action_mask": (np.array([0, 1], np.int8), np.array([0, 0, 1], np.int8))}

    def step(self, action: Any) -> Any:
        if list(action) != [1, 2]:
            raise ValueError("illegal")
        return Sleeps.step(self, action)


class Fails(Sleeps):
    def step(self, action: Any) -> Any:
        raise RuntimeError("not today")


@pytest.mark.alone
@pytest.mark.parametrize(
    ("source", "expected"),
    [(SpaceEnv, False), (Sleeps, True), (Picky, True), (PickyTwice, True), (Fails, False)],
    ids=["computes", "waits", "masked", "two masks", "fails"],
)
def test_waiting_is_told_from_computing(source: Callable[[], gym.Env[Any, Any]], expected: bool) -> None:
    recipe = EnvRecipe(source=source)
    assert (wait_s(recipe, recipe.probe(), seed=3) > 0) is expected


def test_the_trial_uses_an_env_and_a_seed_of_its_own() -> None:
    made: list[SpaceEnv] = []

    def make() -> gym.Env[Any, Any]:
        made.append(SpaceEnv())
        return made[-1]

    recipe = EnvRecipe(source=make)
    spec = recipe.probe()
    block = make_block(
        recipe, spec, seed=1, first_group=0, groups=4, group_size=1, episode=np.zeros(4, np.int64), threads="auto"
    )
    block.reset(blank_row(spec, 4))
    trial, *ours = made[1:]
    assert trial.closed == 1
    assert [env.seeds for env in ours] == [[episode_seed(1, i, 0)] for i in range(4)]
    assert not any(env.taken for env in ours)
    assert trial.seeds[0] not in [env.seeds[0] for env in ours]
    block.close()

"""The parts of a synchronous plan that do not depend on the learner."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.memory.shared import Arena
from paceline.nets.flat import size_of
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import GroupRange
from paceline.train.build import build
from paceline.train.plan import AnyDriver, DriverParts
from paceline.train.rollout_job import RolloutJob
from paceline.train.rollout_plan import RolloutPlan
from paceline.train.worker_recipe import WorkerRecipe


@dataclass(frozen=True, kw_only=True)
class OwnPlan(RolloutPlan):
    def driver(self, parts: DriverParts[RolloutJob]) -> AnyDriver:
        raise NotImplementedError


@pytest.fixture(scope="module")
def recipe() -> WorkerRecipe:
    config = TrainConfig.from_flat(env="tests.games:Counter", n_envs=8, group_size=2, n_steps=6, num_workers=0)
    with closing(build(config)) as training:
        return training.plan.base


def test_a_plan_without_a_driver_cannot_be_created(recipe: WorkerRecipe) -> None:
    abstract: Any = RolloutPlan
    with pytest.raises(TypeError, match="driver"):
        abstract(base=recipe)


def test_workers_share_no_gradients_and_alternate_with_the_driver(recipe: WorkerRecipe) -> None:
    plan = OwnPlan(base=recipe)
    assert (plan.alternates, plan.shares_gradients, plan.stats(), plan.identity()) == (True, False, (), {})


def test_a_job_fills_its_own_columns_in_the_arena(recipe: WorkerRecipe) -> None:
    plan = OwnPlan(base=recipe)
    policy = recipe.policy.build(recipe.shape.spec)
    arena = Arena.create(plan.fields(size_of(policy), 1))
    with closing(arena), closing(plan(arena, Share(0, 1, 2))) as job:
        job.reset()
        job.collect(0)
        valid = arena["valid"].all(0)
        assert valid.tolist() == [False, False, True, True, True, True, False, False]


def test_on_a_node_the_arena_has_only_the_groups_of_the_node(recipe: WorkerRecipe) -> None:
    plan = OwnPlan(base=recipe).on_node(GroupRange(1, 2))
    assert (plan.base.shape.first_group, plan.base.shape.n_envs) == (1, 4)
    shapes = {field.name: field.shape for field in plan.fields(5, 1)}
    assert (shapes["reward"], shapes["episode"]) == ((6, 4), (4,))


def test_acting_reads_views_of_the_published_weights_that_need_no_update(recipe: WorkerRecipe) -> None:
    with closing(Arena.create(OwnPlan(base=recipe).fields(5, 1))) as arena:
        arrays, update = OwnPlan(base=recipe).acting(arena)
        arena["weights"][:] = 3.0
        update()
        assert np.shares_memory(arrays("weights"), arena["weights"])
        del arrays

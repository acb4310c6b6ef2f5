"""The plan of PPO: its arena with and without a pipeline, its nodes, and the weights that workers act with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from paceline.config.train_config import TrainConfig
from paceline.memory.shared import Arena
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import GroupRange
from paceline.train.algorithms.ppo import ACTING, LEARNING, PPOPlan, ppo_plan
from paceline.train.build import build
from paceline.train.training import Training


def training(**settings: Any) -> Training:
    small: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 8, "group_size": 2, "n_steps": 4, "num_workers": 0}
    return build(TrainConfig.from_flat(**{**small, "normalize_obs": True, **settings}))


def plan_of(it: Training) -> PPOPlan:
    plan = ppo_plan(it.plan)
    assert plan is not None
    return plan


@pytest.fixture
def pipeline() -> Iterator[Training]:
    with closing(training(pipeline=True)) as it:
        yield it


def test_only_a_pipeline_has_copies_of_the_rollout_and_of_the_weights(pipeline: Training) -> None:
    with closing(training()) as plain:
        names = {field.name for field in plan_of(plain).fields(9, 1)}
        copies = {field.name for field in plan_of(pipeline).fields(9, 1)} - names
        assert plan_of(plain).alternates
    assert {name for name in copies if not name.startswith(LEARNING)} == {ACTING + "weights", ACTING + "norm/obs"}
    assert LEARNING + "reward" in copies
    assert not plan_of(pipeline).alternates


def test_in_a_pipeline_workers_act_with_the_weights_from_before_the_update(pipeline: Training) -> None:
    driver: Any = pipeline.driver
    driver.collector.reset()
    driver.iterate()
    arrays, _ = plan_of(pipeline).acting(pipeline.arena)
    before = pipeline.arena["weights"].copy()
    driver.collector.next(1)  # copies the weights for the rollout that it starts
    np.testing.assert_array_equal(arrays("weights"), before)
    pipeline.arena["weights"][:] += 1.0
    np.testing.assert_array_equal(arrays("weights"), before)
    driver.collector.release()


def test_a_node_collects_without_pipeline_and_shards(pipeline: Training) -> None:
    node = plan_of(pipeline).on_node(GroupRange(1, 2))
    assert (node.settings.pipeline, node.shards, node.base.shape.groups) == (False, 1, 2)
    assert (pipeline.plan.identity(), node.identity()) == ({"pipeline": True}, {"pipeline": False})


def test_a_worker_that_does_not_help_has_no_gradient() -> None:
    with closing(training()) as it:
        plan = plan_of(it)
        fields = plan.fields(len(it.weights.vector), 1)
    with closing(Arena.create(fields)) as arena:
        for helps in (True, False):
            with closing(plan(arena, Share(0, 0, 4, helps=helps))) as job:
                assert (job.sharded is not None) == helps
            del job


def test_the_plan_of_another_algorithm_is_not_that_of_ppo() -> None:
    with closing(training(algo="dqn", n_steps=8, normalize_obs=False)) as it:
        assert ppo_plan(it.plan) is None

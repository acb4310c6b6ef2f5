"""What every plan must do: it is pickled to workers, and its fields can be laid out in one arena."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import cloudpickle
import pytest

from paceline.config.algorithms import ALGORITHMS
from paceline.config.train_config import TrainConfig
from paceline.train.build import build
from paceline.train.plan import Algorithm, Plan

SMALL: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 8, "num_workers": 0, "quiet": True, "n_eval_episodes": 0}
ALTERNATE = {"ppo"}
"""Algorithms whose workers wait while the driver learns."""


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_pickled_plan_lists_the_same_fields_and_settings(algo: str) -> None:
    with closing(build(TrainConfig.from_flat(algo=algo, **SMALL))) as training:
        plan = training.plan
        sent = cloudpickle.dumps(plan)
        received: Plan[Any] = cloudpickle.loads(sent)
        weights = len(training.weights.vector)
        fields = plan.fields(weights, 2)
    assert received.fields(weights, 2) == fields
    assert (received.identity(), received.stats()) == (plan.identity(), plan.stats())
    assert len({field.name for field in fields}) == len(fields)
    assert len(sent) < 20_000, "a plan holds recipes and settings, no live objects"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_acting_reads_the_published_weights_after_an_update_of_them(algo: str) -> None:
    with closing(build(TrainConfig.from_flat(algo=algo, **SMALL))) as training:
        arrays, update = training.plan.acting(training.arena)
        training.weights.vector[:] = 0.25
        training.weights.renew()
        update()
        assert (arrays("weights") == 0.25).all()


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_workers_wait_for_the_driver_only_in_synchronous_ppo(algo: str) -> None:
    with closing(build(TrainConfig.from_flat(algo=algo, **SMALL))) as training:
        assert training.plan.alternates == (algo in ALTERNATE)
        assert training.plan.shares_gradients == (algo == "ppo")


@pytest.mark.parametrize(
    ("algo", "settings", "expected"),
    [("ppo", {}, False), ("impala", {}, True), ("appo", {}, True), ("a3c", {}, False), ("dqn", {}, False),
     ("dqn", {"schedule": "async"}, True)],
)  # fmt: skip
def test_only_plans_whose_workers_act_on_snapshots_have_fields_for_them(
    algo: str, settings: dict[str, Any], expected: bool
) -> None:
    with closing(build(TrainConfig.from_flat(algo=algo, **SMALL, **settings))) as training:
        plan, arena = training.plan, training.arena
        in_arena = "snapshots" in {field.name for field in arena.fields}
        assert plan.acts_on_snapshots == bool(plan.snapshot_fields(9)) == in_arena == expected
        assert (plan.snapshots(arena) is not None) == expected


def test_by_default_a_policy_has_no_head_for_action_values() -> None:
    config = TrainConfig.from_flat(**SMALL)
    with closing(build(config)) as training:
        assert Algorithm(lambda *_: training.plan).value_head(config, training.spec) is None

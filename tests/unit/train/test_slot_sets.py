"""Sets of slots and the shape of a batch."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from tests.unit.train.async_runs import config

from paceline.errors import ConfigError
from paceline.train.build import build
from paceline.train.run import train
from paceline.train.slot_sets import BATCH, SlotPlan


@pytest.mark.parametrize(
    ("algo", "settings", "text"),
    [
        ("impala", {"batch_slots": 5}, "batch_slots=5: 2 worker(s) with slots_per_worker=2 can fill 4"),
        ("impala", {"num_workers": 0, "batch_slots": 3}, "batch_slots=3: 1 worker(s)"),
    ],
)
def test_a_batch_with_more_slots_than_all_workers_have_is_refused(
    algo: str, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        train(config(algo, **settings))
    assert text in str(caught.value)


def plan_with(**settings: Any) -> SlotPlan[Any]:
    with closing(build(config("impala", n_envs=12, group_size=2, **settings))) as training:
        plan: Any = training.plan
        found: SlotPlan[Any] = plan
        return found


def test_each_set_and_the_batch_have_their_own_fields() -> None:
    found = plan_with(slots_per_worker=3, batch_slots=2, num_workers=4)
    names = {field.name for field in found.fields(5, 4)}
    assert {"0/reward", "1/reward", "2/reward", BATCH + "reward", "begun_version", "weights"} <= names
    assert "3/reward" not in names
    assert {field.name: field.shape for field in found.fields(5, 4)}["begun_version"] == (4, 3)


def test_a_batch_has_room_for_the_slots_of_workers_with_most_groups() -> None:
    found = plan_with(batch_slots=3, num_workers=4)  # six groups: two workers have two groups, two have one
    assert (found.batch_slots, found.batch_shape.groups, found.batch_shape.n_envs) == (3, 6, 12)


def test_by_default_a_batch_has_one_slot_per_worker() -> None:
    assert plan_with(num_workers=3).batch_slots == 3
    assert plan_with(num_workers=0).batch_slots == 1

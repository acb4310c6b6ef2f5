"""Sizes of a rollout, and the fields that hold it."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from paceline.memory.slot_shape import SlotShape
from paceline.spec import EnvSpec

SPEC = EnvSpec.of(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(5), masked=True)


def shape(**changes: int) -> SlotShape:
    return SlotShape(SPEC, **{"n_steps": 4, "groups": 3, "group_size": 2, **changes})


def test_fields_have_a_row_more_where_the_last_observation_needs_one() -> None:
    fields = {field.name: field for field in shape().fields()}
    assert fields["obs/obs"].shape == (5, 6, 3)
    assert fields["mask"].shape == (5, 6, 5)
    assert fields["value"].shape == (5, 6)
    for name in ("action", "reward", "log_prob", "terminated", "truncated", "valid"):
        assert fields[name].shape == (4, 6), name


def test_every_step_of_every_env_has_room_for_a_final_observation_but_no_reserved_memory() -> None:
    fields = {field.name: field for field in shape().fields()}
    assert fields["final_count"].shape == (3,)
    for name, tail in (("final_at", (2,)), ("final_value", ()), ("final_obs/obs", (3,))):
        assert fields[name].shape == (3, 4 * 2, *tail)
        assert fields[name].sparse
    assert not fields["final_count"].sparse


def test_sets_of_slots_have_names_of_their_own() -> None:
    first, second = ([field.name for field in shape().fields(name)] for name in ("0/", "1/"))
    assert len(first) == len(second)
    assert not set(first) & set(second)
    assert all(name.startswith("0/") for name in first)


def test_columns_count_from_the_first_group_that_is_stored() -> None:
    assert shape().columns(1, 2) == slice(2, 6)
    assert shape(first_group=7).columns(8, 2) == slice(2, 6), "a cluster node numbers groups as the whole run does"
    assert shape().n_envs == 6


def test_envs_without_masks_store_none() -> None:
    plain = EnvSpec.of(spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32))
    fields = {field.name: field for field in SlotShape(plain, 4, 3, 2).fields()}
    assert "mask" not in fields
    assert fields["action"].shape == (4, 6, 2)

"""Copies of rollouts into other slots and into checkpoints."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from paceline.memory.shared import Arena
from paceline.memory.slot_copies import copy_columns, copy_rollout, load_slots, slots_state
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.spec import EnvSpec

T, GROUPS, SIZE = 4, 3, 2


def spec() -> EnvSpec:
    obs = spaces.Dict({"v": spaces.Box(-1, 1, (3,), np.float32), "image": spaces.Box(0, 255, (4, 4, 1), np.uint8)})
    return EnvSpec.of(obs, spaces.Discrete(5), masked=True)


def filled(arena: Arena, shape: SlotShape, name: str, base: int) -> Slots:
    """A set whose every column says who it is."""
    slots = Slots(arena, shape, name)
    marks = base + np.arange(shape.n_envs)
    slots.arrays["obs/v"][...] = marks[:, None]
    for field in ("reward", "value", "action"):
        slots.arrays[field][...] = marks
    slots.arrays["valid"][...] = True
    for group in range(shape.groups):
        final = slots.final_slot(group)
        final.count[0] = 0
        final.add(group, group * SIZE + 1, {"v": np.full(3, base), "image": np.zeros((4, 4, 1))})
        final.value[0] = base + group
    return slots


def test_columns_of_several_sets_go_side_by_side_with_their_finals() -> None:
    shape = SlotShape(spec(), T, GROUPS, SIZE)
    arena = Arena.create([*shape.fields("0/"), *shape.fields("1/"), *shape.fields("learning/")])
    try:
        first, second = filled(arena, shape, "0/", 10), filled(arena, shape, "1/", 20)
        learning = Slots(arena, shape, "learning/")
        at = copy_columns(second, slice(2, 6), into=learning, at=0)
        assert copy_columns(first, slice(0, 2), into=learning, at=at) == 6
        batch = learning.trajectory(3)
        assert batch.reward[0].tolist() == [22, 23, 24, 25, 10, 11]
        assert batch.obs["v"][-1, :, 0].tolist() == [22, 23, 24, 25, 10, 11]
        assert batch.finals.t.tolist() == [1, 2, 0]
        assert batch.finals.env.tolist() == [1, 3, 5], "the column that it is in now"
        assert batch.finals.value.tolist() == [21, 22, 10]
    finally:
        arena.close()


def test_a_set_taken_over_or_kept_in_a_checkpoint_is_the_same_batch() -> None:
    shape = SlotShape(spec(), T, GROUPS, SIZE)
    arena = Arena.create([*shape.fields(), *shape.fields("copy/"), *shape.fields("loaded/")])
    try:
        original = filled(arena, shape, "", 10)
        copy, loaded = Slots(arena, shape, "copy/"), Slots(arena, shape, "loaded/")
        copy_rollout(original, into=copy)
        load_slots(loaded, {name: value.copy() for name, value in slots_state(copy).items()})
        original.arrays["reward"][...] = -1.0
        for found in (copy, loaded):
            batch = found.trajectory(1)
            assert batch.reward[2].tolist() == [10, 11, 12, 13, 14, 15]
            assert batch.finals.value.tolist() == [10, 11, 12]
            assert batch.finals.obs["v"].shape == (3, 3)
    finally:
        arena.close()

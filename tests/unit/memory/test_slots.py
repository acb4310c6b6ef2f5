"""Slots: a worker's rows and the learner's trajectory are the same memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium import spaces

from paceline.memory.shared import Arena
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.spec import EnvSpec

T, GROUPS, SIZE = 4, 3, 2


def spec() -> EnvSpec:
    obs = spaces.Dict({"v": spaces.Box(-1, 1, (3,), np.float32), "image": spaces.Box(0, 255, (4, 4, 1), np.uint8)})
    return EnvSpec.of(obs, spaces.Discrete(5), masked=True)


@pytest.fixture
def slots() -> Iterator[Slots]:
    shape = SlotShape(spec(), T, GROUPS, SIZE)
    arena = Arena.create(shape.fields())
    yield Slots(arena, shape)
    arena.close()


def test_rows_and_trajectory_are_the_same_memory(slots: Slots) -> None:
    batch = slots.trajectory(version=9)
    assert batch.version == 9
    for first, groups in [(0, 1), (1, 2)]:
        for t, row in enumerate(slots.rows(first, groups)):
            mark = 100 * first + t
            row.value[...] = mark
            for leaf in row.obs.values():
                leaf[...] = mark
            assert row.mask is not None
            row.mask[:, t] = True
            if t < T:
                row.action[...] = mark
                row.reward[...] = row.log_prob[...] = -mark
                row.terminated[...], row.truncated[...], row.valid[...] = t % 2, t % 3 == 0, True
    for t in range(T + 1):
        expected = [t] * SIZE + [100 + t] * SIZE * 2
        assert batch.value[t].tolist() == expected
        assert batch.obs["v"][t, :, 2].tolist() == expected
        assert batch.obs["image"][t, :, 3, 3, 0].tolist() == expected
        assert batch.mask is not None
        assert batch.mask[t].int().argmax(-1).tolist() == [t] * SIZE * GROUPS
        if t < T:
            assert batch.action[t].tolist() == expected
            assert batch.reward[t].tolist() == batch.log_prob[t].tolist() == [-x for x in expected]
            assert batch.terminated[t].tolist() == [bool(t % 2)] * 6
            assert batch.truncated[t].tolist() == [t % 3 == 0] * 6
    assert batch.valid.all()
    assert batch.obs["image"].dtype == torch.uint8, "pixels stay as they are"


def test_a_worker_sees_its_own_columns_only(slots: Slots) -> None:
    for row in slots.rows(1, 1):
        for array in (row.obs["v"], row.action, row.reward, row.value):
            assert len(array) == SIZE
            array[...] = 5
    batch = slots.trajectory(0)
    mine = slice(SIZE, 2 * SIZE)
    for field in (batch.obs["v"], batch.action, batch.reward, batch.value):
        assert (field[:, mine] == 5).all()
        others = torch.cat([field[:, : mine.start], field[:, mine.stop :]], 1)
        assert not others.any()


def test_the_row_after_the_last_has_no_action_of_its_own(slots: Slots) -> None:
    rows = slots.rows(0, GROUPS)
    assert len(rows) == T + 1
    assert rows[T].action.ctypes.data == rows[T - 1].action.ctypes.data
    assert rows[T].value.ctypes.data != rows[T - 1].value.ctypes.data
    assert rows[T].obs["v"].ctypes.data != rows[T - 1].obs["v"].ctypes.data


def test_finals_come_back_in_group_order_and_are_copies(slots: Slots) -> None:
    def obs(mark: int) -> dict[str, np.ndarray]:
        return {"v": np.full(3, mark, np.float32), "image": np.full((4, 4, 1), mark, np.uint8)}

    assert len(slots.trajectory(0).finals.t) == 0
    last, first = slots.final_slot(2), slots.final_slot(0)
    last.add(0, 5, obs(50))
    first.add(2, 1, obs(21))
    first.add(3, 0, obs(30))
    first.value[:2], last.value[0] = [2.5, 3.5], 0.5
    finals = slots.trajectory(0).finals
    assert finals.t.tolist() == [2, 3, 0]
    assert finals.env.tolist() == [1, 0, 5]
    assert finals.value.tolist() == [2.5, 3.5, 0.5]
    assert finals.obs["v"][:, 0].tolist() == finals.obs["image"][:, 0, 0, 0].tolist() == [21, 30, 50]
    first.count[0] = last.count[0] = 0
    assert len(slots.trajectory(0).finals.t) == 0
    assert finals.obs["v"][0, 0] == 21


def test_every_step_of_every_env_may_be_a_truncation(slots: Slots) -> None:
    final = slots.final_slot(1)
    leaves = {"v": np.zeros(3, np.float32), "image": np.zeros((4, 4, 1), np.uint8)}
    for t in range(T):
        for env in range(SIZE):
            final.add(t, SIZE + env, leaves)
    assert len(slots.trajectory(0).finals.t) == T * SIZE


def test_unmasked_envs_have_no_mask_field() -> None:
    plain = EnvSpec.of(spaces.Box(-1, 1, (2,), np.float64), spaces.Box(-1, 1, (2, 2), np.float32))
    shape = SlotShape(plain, T, GROUPS, SIZE)
    arena = Arena.create(shape.fields())
    batch = Slots(arena, shape).trajectory(0)
    assert batch.mask is None
    assert batch.action.shape == (T, GROUPS * SIZE, 2, 2)
    assert batch.obs["obs"].dtype == torch.float32
    assert all(row.mask is None for row in Slots(arena, shape).rows(0, GROUPS))
    arena.close()

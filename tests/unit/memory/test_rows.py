"""One time step of several envs."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from paceline.memory.rows import Row
from paceline.spec import EnvSpec, Extra, Shaping

OBS = spaces.Dict({"image": spaces.Box(0, 255, (2, 2, 1), np.uint8), "v": spaces.Box(-1, 1, (3,), np.float32)})


def spec(*, masked: bool = True) -> EnvSpec:
    plain = EnvSpec.of(OBS, spaces.Discrete(5), masked=masked)
    return EnvSpec(
        plain.obs,
        plain.action,
        plain.masked,
        plain.dict_obs,
        plain.observation_space,
        plain.action_space,
        {"state": Extra((2,), "int32")},
        Shaping(("bonus",)),
    )


def test_a_blank_row_has_the_shapes_of_the_spec_and_its_own_memory() -> None:
    row, other = Row.blank(spec(), 4), Row.blank(spec(), 4)
    assert {name: (leaf.shape, leaf.dtype.name) for name, leaf in row.obs.items()} == {
        "image": ((4, 2, 2, 1), "uint8"),
        "v": ((4, 3), "float32"),
    }
    assert row.mask is not None
    assert row.mask.shape == (4, 5)
    assert row.extras["state"].shape == (4, 2)
    assert row.extras["state"].dtype == np.int32
    assert set(row.reward_parts) == {"env_reward", "bonus"}
    assert not row.valid.any()
    row.reward[:] = 1.0
    row.obs["v"][:] = 1.0
    assert not other.reward.any()
    assert not other.obs["v"].any()


def test_a_blank_row_of_envs_without_masks_has_none() -> None:
    assert Row.blank(spec(masked=False), 2).mask is None


@pytest.mark.parametrize("index", [slice(0, 1), slice(1, 3)])
def test_a_slice_gives_views_of_the_same_memory(index: slice) -> None:
    stack = Row.blank(spec(), 4)
    picked = stack.at(index)
    picked.reward[...] = picked.value[...] = 5.0
    picked.obs["v"][...] = 6.0
    picked.extras["state"][...] = 7
    picked.reward_parts["bonus"][...] = 8.0
    assert picked.mask is not None
    picked.mask[...] = True
    chosen, others = np.zeros(4, np.bool_), np.ones(4, np.bool_)
    chosen[index], others[index] = True, False
    assert stack.mask is not None
    for array, number in [
        (stack.reward, 5.0), (stack.value, 5.0), (stack.obs["v"], 6.0), (stack.extras["state"], 7),
        (stack.reward_parts["bonus"], 8.0), (stack.mask, True),
    ]:  # fmt: skip
        assert (array[chosen] == number).all()
        assert not array[others].any()


def test_the_fields_that_the_last_row_lacks_have_an_index_of_their_own() -> None:
    stack = Row.blank(spec(), 4)
    stack.value[:], stack.reward[:] = [0, 1, 2, 3], [10, 11, 12, 13]
    row = stack.at(3, 2)
    assert float(row.value) == 3.0
    assert float(row.reward) == 12.0


def test_show_copies_what_an_env_shows_and_tell_what_a_step_gave() -> None:
    target, source = Row.blank(spec(), 3), Row.blank(spec(), 1)
    source.obs["v"][:], source.extras["state"][:], source.reward[:], source.terminated[:], source.valid[:] = (
        2,
        3,
        4,
        1,
        1,
    )
    assert source.mask is not None
    source.mask[:] = True
    target.show(source.at(0), 1)
    assert target.obs["v"][:, 0].tolist() == [0, 2, 0]
    assert target.extras["state"][:, 0].tolist() == [0, 3, 0]
    assert target.mask is not None
    assert target.mask.any(1).tolist() == [False, True, False]
    assert not target.reward.any()
    target.tell(source.at(0), 2)
    assert target.reward.tolist() == [0, 0, 4]
    assert target.terminated.tolist() == target.valid.tolist() == [False, False, True]
    assert not target.truncated.any()

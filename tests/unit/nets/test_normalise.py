"""Running statistics equal those of the whole history, and round-trip through checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.errors import CheckpointError
from paceline.nets.normalise import CLIP, ObsNormaliser, RewardNormaliser, RunningMoments, normalised_leaves
from paceline.spec import EnvSpec

VECTOR = EnvSpec.of(spaces.Box(-1, 1, (3,)), spaces.Discrete(2))
MIXED = EnvSpec.of(
    spaces.Dict(
        {
            "x": spaces.Box(-1, 1, (2, 2)),
            "eye": spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "n": spaces.Discrete(3),
            "bytes": spaces.Box(0, 9, (2,), np.uint8),
        }
    ),
    spaces.Discrete(2),
)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5), offset=st.sampled_from([0.0, 1e4]))
def test_moments_equal_those_of_everything_seen(sizes: list[int], offset: float) -> None:
    draw = np.random.default_rng(sum(sizes))
    pieces = [(offset + draw.standard_normal((n, 2))).astype(np.float32) for n in sizes]
    moments = RunningMoments((2,))
    for piece in pieces:
        moments.update(piece)
    everything = np.concatenate(pieces).astype(np.float64)
    assert moments.count == len(everything)
    if len(everything) > 1:
        np.testing.assert_allclose(moments.mean, everything.mean(0), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(moments.inv_std, 1 / np.sqrt(everything.var(0) + 1e-8), rtol=1e-6)


def test_only_float_vectors_are_normalised() -> None:
    assert [leaf.name for leaf in normalised_leaves(MIXED)] == ["x"]
    normaliser = ObsNormaliser(MIXED)
    obs: dict[str, NDArray[Any]] = {
        "x": np.ones((4, 2, 2), np.float32),
        "eye": np.ones((4, 8, 8, 3), np.uint8),
        "n": np.ones(4, np.int64),
        "bytes": np.ones((4, 2), np.uint8),
    }
    normaliser.update({name: leaf[None] for name, leaf in obs.items()})
    result = normaliser.apply(obs)
    assert (result["x"] == 0).all()
    assert all(result[name] is obs[name] for name in ("eye", "n", "bytes"))


def test_result_has_mean_zero_deviation_one_and_is_clipped() -> None:
    rows = (7 + 3 * np.random.default_rng(0).standard_normal((50, 8, 3))).astype(np.float32)
    normaliser = ObsNormaliser(VECTOR)
    assert np.array_equal(normaliser.apply({"obs": rows})["obs"], np.clip(rows, -CLIP, CLIP)), "identity at first"
    normaliser.update({"obs": rows})
    result = normaliser.apply({"obs": rows})["obs"]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.mean((0, 1)), 0, atol=1e-4)
    np.testing.assert_allclose(result.std((0, 1)), 1, atol=1e-4)
    assert normaliser.apply({"obs": np.full((1, 3), 1e9, np.float32)})["obs"].max() == CLIP


def test_numpy_torch_and_applier_give_the_same_bits() -> None:
    rows = (7 + 3 * np.random.default_rng(0).standard_normal((6, 8, 3))).astype(np.float32)
    normaliser = ObsNormaliser(VECTOR)
    normaliser.update({"obs": rows})
    expected = normaliser.apply({"obs": rows[0]})["obs"]
    assert np.array_equal(expected, normaliser.apply_torch({"obs": torch.from_numpy(rows[0])})["obs"])
    assert np.array_equal(expected, normaliser.applier(8)({"obs": rows[0]})["obs"])


def test_rows_that_are_not_valid_do_not_count() -> None:
    rows = np.random.default_rng(0).random((5, 4, 3)).astype(np.float32)
    valid = np.random.default_rng(1).random((5, 4)) < 0.5
    part, whole = ObsNormaliser(VECTOR), ObsNormaliser(VECTOR)
    part.update({"obs": rows}, valid)
    whole.update({"obs": rows[valid][None]})
    assert np.array_equal(part.arrays["obs"], whole.arrays["obs"])


def test_statistics_are_in_the_callers_memory_and_attach_keeps_them() -> None:
    shared = {"obs": np.zeros((2, 3), np.float32)}
    trainer = ObsNormaliser(VECTOR, shared)
    assert shared["obs"].tolist() == [[0, 0, 0], [1, 1, 1]]
    trainer.update({"obs": np.random.default_rng(0).random((5, 4, 3)).astype(np.float32)})
    published = shared["obs"].copy()
    worker = ObsNormaliser(VECTOR, shared, attach=True)
    assert np.array_equal(shared["obs"], published)
    row = np.ones((1, 3), np.float32)
    assert np.array_equal(worker.apply({"obs": row})["obs"], trainer.apply({"obs": row})["obs"])


def test_reward_is_divided_by_the_deviation_of_the_discounted_return() -> None:
    draw = np.random.default_rng(0)
    reward, ended = draw.standard_normal((40, 3)).astype(np.float32), draw.random((40, 3)) < 0.1
    returns = np.zeros((40, 3))
    for env in range(3):  # by definition, env by env
        running = 0.0
        for t in range(40):
            running = 0.9 * running + reward[t, env]
            returns[t, env] = running
            running *= not ended[t, env]
    normaliser = RewardNormaliser(3, 0.9)
    assert torch.equal(normaliser.apply(torch.tensor([3.0])), torch.tensor([3.0])), "identity at first"
    for part in (slice(0, 17), slice(17, 40)):  # the carry crosses rollouts
        normaliser.update(reward[part], ended[part])
    scaled = normaliser.apply(torch.from_numpy(reward))
    assert scaled.dtype == torch.float32
    np.testing.assert_allclose(scaled, reward / np.sqrt(returns.var() + 1e-8), rtol=1e-5)
    assert normaliser.apply(torch.tensor([1e6])).item() == CLIP


def test_reset_rows_do_not_count_as_rewards() -> None:
    reward = np.array([[1.0], [0.0], [3.0]], np.float32)
    ended, valid = np.array([[True], [False], [False]]), np.array([[True], [False], [True]])
    with_row, without = RewardNormaliser(1, 0.9), RewardNormaliser(1, 0.9)
    with_row.update(reward, ended, valid)
    without.update(reward[[0, 2]], ended[[0, 2]])
    assert {k: v.tolist() for k, v in with_row.state().items()} == {k: v.tolist() for k, v in without.state().items()}


def test_state_round_trips_and_later_updates_are_identical() -> None:
    draw = np.random.default_rng(0)
    first, second = draw.random((2, 5, 4, 3)).astype(np.float32)
    reward, ended = draw.random((2, 5, 4)).astype(np.float32), draw.random((2, 5, 4)) < 0.2
    obs, rewards = ObsNormaliser(VECTOR), RewardNormaliser(4, 0.9)
    obs.update({"obs": first})
    rewards.update(reward[0], ended[0])
    obs_twin, rewards_twin = ObsNormaliser(VECTOR), RewardNormaliser(4, 0.9)
    obs_twin.load(obs.state())
    rewards_twin.load(rewards.state())
    assert np.array_equal(obs_twin.arrays["obs"], obs.arrays["obs"])
    for normaliser in (obs, obs_twin):
        normaliser.update({"obs": second})
    for one in (rewards, rewards_twin):
        one.update(reward[1], ended[1])
    for ours, theirs in ((obs, obs_twin), (rewards, rewards_twin)):
        state, twin = ours.state(), theirs.state()
        assert state.keys() == twin.keys()
        assert all(np.array_equal(state[k], twin[k]) for k in state)


def test_the_state_of_another_env_raises() -> None:
    other = EnvSpec.of(spaces.Box(-1, 1, (5,)), spaces.Discrete(2))
    with pytest.raises(CheckpointError, match=r"'obs:mean': must have shape \(3,\) \(\(5,\)\)"):
        ObsNormaliser(VECTOR).load(ObsNormaliser(other).state())
    with pytest.raises(CheckpointError, match="missing"):
        ObsNormaliser(VECTOR).load({})


def test_nan_and_infinite_values_are_not_part_of_the_statistics() -> None:
    reward = np.ones((4, 2), np.float32)
    reward[1, 0] = np.nan
    normaliser = RewardNormaliser(2, gamma=0.9)
    normaliser.update(reward, np.zeros((4, 2), np.bool_))
    normaliser.update(np.ones((4, 2), np.float32), np.zeros((4, 2), np.bool_))
    assert torch.isfinite(normaliser.apply(torch.ones(4, 2))).all()
    normaliser.forget([1])
    assert normaliser.carry[0] > 0
    assert normaliser.carry[1] == 0

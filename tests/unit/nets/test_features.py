"""Encoding of observation leaves: order, one-hot categories, and numpy against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.nets.mlps import DISCRETE, MIXED, observations, randomised, tensors

from paceline.errors import EnvError
from paceline.nets.features import NumpyEncoder, encode, leaves_of, policy_input
from paceline.nets.mlp import MLPPolicy
from paceline.spec import EnvSpec


def test_leaves_are_encoded_one_hot_flat_and_in_order() -> None:
    policy = MLPPolicy(MIXED, ())
    obs = {
        "bits": np.array([[[1, 0], [0, 1]]], np.int8),
        "choice": np.array([1]),
        "choices": np.array([[1, 0]]),
        "wide": np.array([[[1.5, 2.5], [3.5, 4.5]]], np.float32),
        "bytes": np.array([[7, 8]], np.uint8),
    }
    row = {
        "bits": [1.0, 0.0, 0.0, 1.0],
        "bytes": [7.0, 8.0],
        "choice": [0.0, 0.0, 1.0],  # counts from -1
        "choices": [0.0, 1.0, 1.0, 0.0, 0.0],
        "wide": [1.5, 2.5, 3.5, 4.5],
    }
    features = torch.tensor([[x for leaf in MIXED.obs for x in row[leaf.name]]])
    with torch.no_grad():
        expected = features @ policy.policy_weight.T
        torch.testing.assert_close(policy(tensors(obs))[0], expected)
    np.testing.assert_allclose(policy.numpy_actor(1, 1)(obs)[0], expected, atol=1e-6)


def test_numpy_encoding_forgets_the_previous_row() -> None:
    policy = randomised(MLPPolicy(MIXED, (8,)))
    actor = policy.numpy_actor(1, 3)
    actor(observations(MIXED, 3, seed=5))
    again = [a.copy() for a in actor(observations(MIXED, 3, seed=6))]
    fresh = policy.numpy_actor(1, 3)(observations(MIXED, 3, seed=6))
    assert all(np.array_equal(a, b) for a, b in zip(again, fresh, strict=True))


@pytest.mark.parametrize("spec", [DISCRETE, MIXED], ids=["plain", "dict"])
def test_numpy_and_torch_encode_the_same_rows_for_any_number_of_rows(spec: EnvSpec) -> None:
    encoder = NumpyEncoder(spec.obs)
    for rows in (3, 8, 1, 8):
        obs = observations(spec, rows, seed=rows)
        expected = encode(tensors(obs), spec.obs)
        assert expected.shape == (rows, sum(leaf.features for leaf in spec.obs))
        np.testing.assert_array_equal(encoder(obs), expected.numpy())


def test_a_single_float_vector_is_not_copied() -> None:
    obs = observations(DISCRETE, 5)
    assert np.shares_memory(NumpyEncoder(DISCRETE.obs)(obs), obs["obs"])


def test_only_a_checking_encoder_raises_for_a_category_outside_its_space() -> None:
    obs = observations(MIXED, 2)
    obs["choice"] = np.array([-2, 0])  # the space is -1, 0, 1
    with pytest.raises(EnvError, match=r"observation 'choice': categories must start at -1, .*got -2"):
        NumpyEncoder(MIXED.obs, checks=True)(obs)
    taken_for_another = {**obs, "choice": np.array([1, 0])}
    expected = NumpyEncoder(MIXED.obs)(taken_for_another).copy()
    np.testing.assert_array_equal(NumpyEncoder(MIXED.obs)(obs), expected)


def test_a_policy_gets_the_single_leaf_or_the_dict_of_leaves() -> None:
    plain, mixed = tensors(observations(DISCRETE, 2)), tensors(observations(MIXED, 2))
    assert policy_input(DISCRETE, plain) is plain["obs"]
    assert policy_input(MIXED, mixed) == mixed
    for spec, leaves in ((DISCRETE, plain), (MIXED, mixed)):
        assert leaves_of(policy_input(spec, leaves), spec.obs) == leaves

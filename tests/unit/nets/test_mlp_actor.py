"""`MLPActor`: the same numbers as the module, and bits that do not depend on the number of groups or rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.nets.mlps import ACTIVATIONS, BOX, DISCRETE, MIXED, observations, randomised, tensors

from paceline.nets.flat import move_parameters, size_of
from paceline.nets.mlp import Activation, MLPPolicy
from paceline.spec import EnvSpec


@pytest.mark.parametrize("spec", [DISCRETE, BOX, MIXED], ids=["discrete", "box", "mixed"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_numpy_actor_agrees_with_the_module(spec: EnvSpec, activation: Activation) -> None:
    policy = randomised(MLPPolicy(spec, (16, 12), activation))
    obs = observations(spec, 12)
    params, value = policy.numpy_actor(3, 4)(obs)
    with torch.no_grad():
        expected = policy(tensors(obs) if spec.dict_obs else torch.from_numpy(obs["obs"]))
    assert params.dtype == value.dtype == np.float32
    np.testing.assert_allclose(params, expected[0], atol=2e-6)
    np.testing.assert_allclose(value, expected[1], atol=2e-6)


@pytest.mark.parametrize("spec", [DISCRETE, BOX, MIXED], ids=["discrete", "box", "mixed"])
@pytest.mark.parametrize("hidden", [(64, 64), (33, 17), (256,), ()])
@pytest.mark.parametrize("group_size", range(1, 9))
def test_a_group_does_not_depend_on_how_many_share_the_worker(
    spec: EnvSpec, hidden: tuple[int, ...], group_size: int
) -> None:
    policy = randomised(MLPPolicy(spec, hidden))
    obs = observations(spec, 8 * group_size)
    expected = [a.copy() for a in policy.numpy_actor(8, group_size)(obs)]
    for groups in (1, 2, 3):
        actor = policy.numpy_actor(groups, group_size)
        for first in range(0, 9 - groups, groups):
            rows = slice(first * group_size, (first + groups) * group_size)
            for alone, together in zip(actor({k: v[rows] for k, v in obs.items()}), expected, strict=True):
                assert np.array_equal(alone, together[rows])


@pytest.mark.parametrize("spec", [DISCRETE, BOX, MIXED], ids=["discrete", "box", "mixed"])
@pytest.mark.parametrize("group_size", [1, 2, 4, 5])
def test_values_of_many_rows_are_those_of_each_row(spec: EnvSpec, group_size: int) -> None:
    actor = randomised(MLPPolicy(spec, (33, 17))).numpy_actor(3, group_size)
    n = 3 * group_size
    rows = [observations(spec, n, seed=seed) for seed in range(5)]
    both = [tuple(array.copy() for array in actor(obs)) for obs in rows]
    many = {name: np.stack([obs[name] for obs in rows]) for name in rows[0]}
    wider = np.full((5, n + 2), np.nan, np.float32)  # as a worker's own columns of a slot
    for count in (5, 1, 3, 5):
        actor.values({name: leaf[:count] for name, leaf in many.items()}, wider[:count, 1:-1])
        assert np.array_equal(wider[:count, 1:-1], np.stack([value for _, value in both[:count]]))
    assert np.isnan(wider[:, [0, -1]]).all()
    for obs, (params, _) in zip(rows, both, strict=True):
        assert np.array_equal(actor.act(obs), params)


def test_numpy_actor_follows_in_place_updates() -> None:
    policy = MLPPolicy(BOX, (8, 8))
    vector = torch.zeros(size_of(policy))
    move_parameters(policy, vector)
    actor, obs = policy.numpy_actor(2, 2), observations(BOX, 4)
    with torch.no_grad():
        vector.add_(0.1 * torch.randn_like(vector))
        expected = policy(torch.from_numpy(obs["obs"]))
    for got, want in zip(actor(obs), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)

"""`NumpyMLP` gives the outputs and gradients of `TorchNet`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from paceline.errors import EnvError
from paceline.nets.array_net import NumpyMLP, TorchNet, array_net_for
from paceline.nets.flat import move_parameters, size_of
from paceline.nets.mlp import Activation, MLPPolicy
from paceline.spec import EnvSpec

SPECS = {
    "vector": EnvSpec.of(spaces.Box(-1, 1, (5,), np.float32), spaces.Discrete(3)),
    "dict": EnvSpec.of(
        spaces.Dict({"a": spaces.Discrete(4), "b": spaces.Box(-1, 1, (2,), np.float32)}), spaces.Discrete(3)
    ),
}
ROWS = 9


def network(spec: EnvSpec, activation: Activation, sizes: tuple[int, ...]) -> MLPPolicy:
    torch.manual_seed(0)
    policy = MLPPolicy(spec, sizes, activation)
    move_parameters(policy, torch.zeros(size_of(policy)))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return policy


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("activation", ["tanh", "relu", "elu"])
@pytest.mark.parametrize("sizes", [(), (8,), (8, 6)])
@pytest.mark.parametrize("both", [True, False])
def test_numpy_mlp_equals_torch(kind: str, activation: Activation, sizes: tuple[int, ...], both: bool) -> None:
    spec = SPECS[kind]
    policy = network(spec, activation, sizes)
    rng = np.random.default_rng(1)
    obs = {
        leaf.name: rng.integers(0, leaf.nvec[0], ROWS)
        if leaf.nvec
        else rng.normal(size=(ROWS, *leaf.shape)).astype("f4")
        for leaf in spec.obs
    }
    slopes = rng.normal(size=(ROWS, 3)).astype(np.float32), rng.normal(size=ROWS).astype(np.float32)
    reference = TorchNet(policy, spec, learns=True)
    params, value = reference(obs, learns=True)
    reference.pullback(slopes[0], slopes[1] if both else np.zeros(ROWS, np.float32))
    expected = reference.gradient.clone()
    tried = NumpyMLP(policy, learns=True, both=both)
    found = tried(obs)
    np.testing.assert_allclose(found[0], params, atol=2e-6)
    if both:
        np.testing.assert_allclose(found[1], value, atol=2e-6)
    for _ in range(2):  # and again: nothing adds up
        tried(obs, learns=True)
        tried.pullback(*slopes)
        torch.testing.assert_close(tried.gradient, expected, atol=2e-5, rtol=1e-4)


def test_any_number_of_rows_in_any_order() -> None:
    spec = SPECS["dict"]
    rng = np.random.default_rng(2)
    reference = TorchNet(network(spec, "tanh", (8, 6)), spec, learns=True)
    tried = NumpyMLP(network(spec, "tanh", (8, 6)), learns=True, both=True)
    for rows in (5, 9, 3, 9, 1, 20, 4):
        obs: dict[str, NDArray[Any]] = {
            "a": rng.integers(0, 4, rows),
            "b": rng.normal(size=(rows, 2)).astype(np.float32),
        }
        slopes = rng.normal(size=(rows, 3)).astype(np.float32), rng.normal(size=rows).astype(np.float32)
        reference(obs, learns=True)
        reference.pullback(*slopes)
        tried(obs, learns=True)
        tried.pullback(*slopes)
        torch.testing.assert_close(tried.gradient, reference.gradient, atol=2e-5, rtol=1e-4)


def test_gradient_of_the_log_standard_deviation_of_box_actions() -> None:
    spec = EnvSpec.of(spaces.Box(-1, 1, (5,), np.float32), spaces.Box(-1, 1, (2,), np.float32))
    rng = np.random.default_rng(3)
    obs = {"obs": rng.normal(size=(ROWS, 5)).astype(np.float32)}
    slopes = rng.normal(size=(ROWS, 4)).astype(np.float32), rng.normal(size=ROWS).astype(np.float32)
    reference = TorchNet(network(spec, "tanh", (8,)), spec, learns=True)
    tried = NumpyMLP(network(spec, "tanh", (8,)), learns=True, both=True)
    expected = reference(obs, learns=True)[0].copy()
    reference.pullback(*slopes)
    np.testing.assert_allclose(tried(obs, learns=True)[0], expected, atol=2e-6)
    tried.pullback(*slopes)
    torch.testing.assert_close(tried.gradient, reference.gradient, atol=2e-5, rtol=1e-4)


def test_tensors_and_fortran_ordered_gradients_are_accepted() -> None:
    spec = EnvSpec.of(spaces.MultiDiscrete([3, 2]), spaces.Discrete(3))
    rng = np.random.default_rng(4)
    obs = {"obs": torch.from_numpy(rng.integers(0, 2, (ROWS, 2)))}
    slopes = np.asfortranarray(rng.normal(size=(ROWS, 3)), np.float32), rng.normal(size=ROWS).astype(np.float32)
    reference = TorchNet(network(spec, "elu", (8,)), spec, learns=True)
    tried = NumpyMLP(network(spec, "elu", (8,)), learns=True, both=True)
    for net in (reference, tried):
        net(obs, learns=True)
        net.pullback(*slopes)
    torch.testing.assert_close(tried.gradient, reference.gradient, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_categories_outside_their_space_raise(wrong: int) -> None:
    net = NumpyMLP(network(SPECS["dict"], "tanh", (8,)), learns=True, both=True)
    obs = {"a": np.array([0, wrong]), "b": np.zeros((2, 2), np.float32)}
    with pytest.raises(
        EnvError, match=rf"observation 'a': categories must start at 0, with counts \[4\] \(got {wrong}\)"
    ):
        net(obs)


def test_pullback_needs_a_call_with_learns() -> None:
    spec = SPECS["vector"]
    net = TorchNet(network(spec, "tanh", (8,)), spec, learns=True)
    net({"obs": np.ones((ROWS, 5), np.float32)})
    with pytest.raises(ValueError, match="learns=True"):
        net.pullback(np.zeros((ROWS, 3), np.float32), np.zeros(ROWS, np.float32))


def test_numpy_is_used_only_for_the_exact_class_on_one_thread() -> None:
    policy = network(SPECS["vector"], "relu", (8,))
    spec = SPECS["vector"]
    assert isinstance(array_net_for(policy, spec, learns=False, both=True), NumpyMLP)
    assert isinstance(array_net_for(policy, spec, learns=False, both=True, threads=2), TorchNet)
    assert isinstance(array_net_for(torch.nn.Linear(5, 3), spec, learns=False, both=True), TorchNet)

    class Own(MLPPolicy):
        """May do something else in `forward`."""

    assert isinstance(array_net_for(Own(spec, (8,), "relu"), spec, learns=False), TorchNet)


def test_numpy_mlp_follows_in_place_updates() -> None:
    policy = network(SPECS["vector"], "relu", (8,))
    net = NumpyMLP(policy, learns=False, both=True)
    obs = {"obs": np.ones((ROWS, 5), np.float32)}
    before = net(obs)[0].copy()
    with torch.no_grad():
        policy.policy_bias.add_(1.0)
    np.testing.assert_allclose(net(obs)[0], before + 1.0, atol=1e-6)


def test_observations_may_have_no_features() -> None:
    spec = EnvSpec.of(spaces.Box(0, 1, (0,), np.float32), spaces.Discrete(3))
    policy = network(spec, "tanh", (8,))
    net = NumpyMLP(policy, learns=True, both=True)
    params, _ = net({"obs": np.zeros((ROWS, 0), np.float32)}, learns=True)
    net.pullback(np.ones((ROWS, 3), np.float32), np.ones(ROWS, np.float32))
    assert params.shape == (ROWS, 3)
    assert policy.policy_bias.grad is not None
    assert policy.policy_bias.grad.tolist() == [ROWS] * 3

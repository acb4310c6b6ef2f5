"""The MLP against plain layers, its gradient by finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.unit.nets.mlps import ACTIVATIONS, BOX, DISCRETE, randomised
from torch import nn

from paceline.errors import ConfigError
from paceline.nets.mlp import Activation, MLPPolicy, _backward, _forward
from paceline.spec import EnvSpec


def plain_tower(policy: MLPPolicy, tower: int) -> nn.Sequential:
    """The same network made of nn.Linear."""
    act = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}[policy.activation]
    layers: list[nn.Module] = []
    for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        part = weight[:, tower] if i == 0 else weight[tower]
        linear = nn.Linear(*part.shape)
        linear.weight.data, linear.bias.data = part.detach().T.clone(), bias[tower].detach().clone()
        layers += [linear, act()]
    weight, bias = (
        (policy.policy_weight, policy.policy_bias) if tower == 0 else (policy.value_weight, policy.value_bias)
    )
    head = nn.Linear(weight.shape[-1], bias.numel())
    head.weight.data, head.bias.data = weight.detach().reshape(head.weight.shape), bias.detach().reshape(-1)
    return nn.Sequential(*layers, head)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (5,), (16, 8), (7, 9, 4)])
def test_equals_two_plain_towers_in_value_and_gradient(hidden: tuple[int, ...], activation: Activation) -> None:
    policy = randomised(MLPPolicy(DISCRETE, hidden, activation))
    actor, critic = plain_tower(policy, 0), plain_tower(policy, 1)
    x = torch.randn(10, 4)
    params, value = policy(x)
    torch.testing.assert_close(params, actor(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(value, critic(x).squeeze(1), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(policy(x), (params, value), strict=True))

    weights = torch.randn(10, 3), torch.randn(10)
    ((params * weights[0]).sum() + (value * weights[1]).sum()).backward()
    ((actor(x) * weights[0]).sum() + (critic(x).squeeze(1) * weights[1]).sum()).backward()
    for tower, plain in ((0, actor), (1, critic)):
        expected = [p.grad for p in plain.parameters()]
        got = []
        for i, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
            assert weight.grad is not None
            assert bias.grad is not None
            got += [(weight.grad[:, tower] if i == 0 else weight.grad[tower]).T, bias.grad[tower]]
        got += [policy.policy_weight.grad, policy.policy_bias.grad] if tower == 0 else []
        got += [policy.value_weight.grad[None], policy.value_bias.grad[None]] if tower == 1 else []  # type: ignore[index]
        for ours, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (3,), (3, 4)])
def test_hand_written_gradient_by_finite_differences(hidden: tuple[int, ...], activation: Activation) -> None:
    draw = torch.Generator().manual_seed(0)
    widths = (2, *hidden)
    shapes: list[tuple[int, ...]] = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        shapes += [(a, 2, b) if i == 0 else (2, a, b), (2, b)]
    shapes += [(2, widths[-1]), (2,), (widths[-1],), ()]
    rows = torch.randn(5, 2, generator=draw, dtype=torch.float64)
    weights = [torch.randn(s, generator=draw, dtype=torch.float64) for s in shapes]
    d_params = torch.randn(5, 2, generator=draw, dtype=torch.float64)
    d_value = torch.randn(5, generator=draw, dtype=torch.float64)

    def loss() -> float:
        params, value, _ = _forward(rows, activation, weights)
        return float((params * d_params).sum() + (value * d_value).sum())

    with torch.no_grad():
        _, _, hidden_outputs = _forward(rows, activation, weights)
        gradients = _backward(rows, activation, hidden_outputs, weights, d_params, d_value)
        for weight, gradient in zip(weights, gradients, strict=True):
            assert gradient.shape == weight.shape
            for at in itertools.product(*map(range, weight.shape)):
                kept, step = weight[at].clone(), 1e-6
                weight[at] = kept + step
                above = loss()
                weight[at] = kept - step
                below = loss()
                weight[at] = kept
                assert float(gradient[at]) == pytest.approx((above - below) / (2 * step), abs=1e-6)


def test_a_loss_may_use_the_values_alone() -> None:
    policy = MLPPolicy(DISCRETE)
    policy(torch.randn(3, 4))[1].sum().backward()
    assert policy.policy_weight.grad is None
    assert policy.value_weight.grad is not None
    assert (policy.value_weight.grad != 0).any()


def test_initial_weights_are_orthogonal_with_their_gains() -> None:
    policy = MLPPolicy(DISCRETE, (16, 16))
    for tower in (0, 1):
        rows = policy.weights[0][:, tower]
        torch.testing.assert_close(rows @ rows.T, 2 * torch.eye(4), atol=1e-5, rtol=0)
        square = policy.weights[1][tower]
        torch.testing.assert_close(square @ square.T, 2 * torch.eye(16), atol=1e-5, rtol=0)
    head = policy.policy_weight
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(3), atol=1e-8, rtol=0)
    assert policy.value_weight.norm().item() == pytest.approx(1.0)
    assert not torch.equal(policy.weights[1][0], policy.weights[1][1]), "towers must not start alike"


def test_box_actions_get_a_log_deviation_of_their_own() -> None:
    policy = MLPPolicy(BOX)
    params, _ = policy(torch.randn(5, 4))
    assert params.shape == (5, 4)
    assert (params[:, 2:] == 0).all()
    params[:, 2:].sum().backward()
    assert policy.log_std.grad is not None
    assert policy.log_std.grad.tolist() == [5.0, 5.0]


def test_what_it_cannot_do_is_said() -> None:
    pixels = EnvSpec.of(spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"cannot read images.*nature_cnn"):
        MLPPolicy(pixels)
    with pytest.raises(ConfigError, match=r"hidden_sizes=\(64, 0\)"):
        MLPPolicy(DISCRETE, (64, 0))
    with pytest.raises(ConfigError, match=r"activation='swish'.*tanh, relu, elu"):
        MLPPolicy(DISCRETE, activation="swish")  # type: ignore[arg-type]

"""The MLP against plain layers, its gradient by finite differences, and its numpy forward bit for bit."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.errors import ConfigError
from paceline.nets.flat import FlatParameters, size_of
from paceline.nets.mlp import Activation, MLPPolicy, _backward, _forward
from paceline.spec import EnvSpec

ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
DISCRETE = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(3))
BOX = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,)))
MIXED = EnvSpec.of(
    spaces.Dict(
        {
            "bits": spaces.MultiBinary((2, 2)),
            "choice": spaces.Discrete(3, start=-1),
            "choices": spaces.MultiDiscrete([2, 3]),
            "wide": spaces.Box(-1, 1, (2, 2)),
            "bytes": spaces.Box(0, 9, (2,), np.uint8),
        }
    ),
    spaces.Discrete(2),
)


def observations(spec: EnvSpec, rows: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    spec.observation_space.seed(seed)
    raw = [spec.split(spec.observation_space.sample()) for _ in range(rows)]
    return {leaf.name: np.stack([r[leaf.name] for r in raw]).astype(leaf.dtype) for leaf in spec.obs}


def tensors(obs: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(leaf) for name, leaf in obs.items()}


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


def randomised(policy: MLPPolicy) -> MLPPolicy:
    """Biases and heads start at or near zero, which would hide mistakes."""
    torch.manual_seed(1)
    for parameter in policy.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return policy


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
    flat = FlatParameters(policy, torch.zeros(size_of(policy)))
    actor, obs = policy.numpy_actor(2, 2), observations(BOX, 4)
    with torch.no_grad():
        flat.vector.add_(0.1 * torch.randn_like(flat.vector))
        expected = policy(torch.from_numpy(obs["obs"]))
    for got, want in zip(actor(obs), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


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

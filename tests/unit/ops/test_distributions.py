"""Action heads: acting and learning agree with each other and with torch.distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, distributions

from paceline.errors import ConfigError
from paceline.ops.distributions import ActionHead, head_for
from paceline.spec import EnvSpec

SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5, start=3),
    "binary choice": spaces.Discrete(2),
    "multi": spaces.MultiDiscrete([3, 2, 4]),
    "bits": spaces.MultiBinary([2, 3]),
    "box": spaces.Box(-1, 1, (2, 2)),
}


def reference(kind: str, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy by torch.distributions."""
    match kind:
        case "discrete" | "binary choice":
            one = distributions.Categorical(logits=params)
            return one.log_prob(action), one.entropy()
        case "multi":
            parts = [distributions.Categorical(logits=p) for p in params.split([3, 2, 4], 1)]
            log_prob = sum((p.log_prob(action[:, i]) for i, p in enumerate(parts)), torch.zeros(()))
            return log_prob, sum((p.entropy() for p in parts), torch.zeros(()))
        case "bits":
            bits = distributions.Bernoulli(logits=params)
            return bits.log_prob(action.flatten(1).float()).sum(1), bits.entropy().sum(1)
    normal = distributions.Normal(params[:, :4], params[:, 4:].clamp(-20.0, 2.0).exp())
    return normal.log_prob(action.flatten(1)).sum(1), normal.entropy().sum(1)


def make(kind: str, rows: int, seed: int = 0) -> tuple[ActionHead, NDArray[np.float32], NDArray[np.float32]]:
    spec = EnvSpec.of(spaces.Box(-1, 1, (3,)), SPACES[kind]).action
    draw = np.random.default_rng(seed)
    head = head_for(spec)
    noise = head.draw_noise(draw, (rows,))
    assert noise.shape == (rows, spec.noise_size)
    assert noise.dtype == np.float32
    return head, draw.standard_normal((rows, spec.param_size)).astype(np.float32), noise


def sample(
    head: ActionHead, params: NDArray[np.float32], noise: NDArray[np.float32], mask: NDArray[np.bool_] | None = None
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    action = head.choose(params, noise, mask)
    return action, head.log_prob(params, action, mask)


@pytest.mark.parametrize("kind", SPACES)
def test_sampled_actions_have_the_stored_shape_and_dtype(kind: str) -> None:
    spec = EnvSpec.of(spaces.Box(-1, 1, (3,)), SPACES[kind]).action
    head, params, noise = make(kind, 7)
    for action in (sample(head, params, noise)[0], head.mode(params)):
        assert action.shape == (7, *spec.shape)
        assert action.dtype == spec.dtype


@pytest.mark.parametrize("kind", SPACES)
def test_acting_learning_and_torch_distributions_agree(kind: str) -> None:
    head, params, noise = make(kind, 200)
    action, acted = sample(head, params, noise)
    log_prob, entropy = head.log_prob_entropy(torch.from_numpy(params), torch.from_numpy(action))
    expected_log_prob, expected_entropy = reference(kind, torch.from_numpy(params), torch.from_numpy(action))
    assert acted.dtype == np.float32
    np.testing.assert_allclose(acted, log_prob, atol=1e-5)
    torch.testing.assert_close(log_prob, expected_log_prob, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", SPACES)
def test_gradients_are_those_of_torch_distributions(kind: str) -> None:
    head, params, noise = make(kind, 20)
    action = torch.from_numpy(sample(head, params, noise)[0])
    grads = []
    for function in (head.log_prob_entropy, lambda p, a: reference(kind, p, a)):
        leaf = torch.from_numpy(params.copy()).requires_grad_()
        log_prob, entropy = function(leaf, action)
        (log_prob.sum() + 0.3 * entropy.sum()).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", SPACES)
def test_log_prob_of_the_mode_is_the_highest(kind: str) -> None:
    head, params, noise = make(kind, 50)
    sampled = torch.from_numpy(sample(head, params, noise)[0])
    best, _ = head.log_prob_entropy(torch.from_numpy(params), torch.from_numpy(head.mode(params)))
    other, _ = head.log_prob_entropy(torch.from_numpy(params), sampled)
    assert (best >= other - 1e-6).all()
    assert (best > other + 1e-3).any()


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 33])
def test_a_row_does_not_depend_on_its_neighbours(kind: str, rows: int) -> None:
    head, params, noise = make(kind, 33)
    action, log_prob = sample(head, params, noise)
    for start in (0, 33 - rows):
        part = slice(start, start + rows)
        alone, alone_log_prob = sample(head, params[part].copy(), noise[part].copy())
        assert np.array_equal(alone, action[part])
        assert np.array_equal(alone_log_prob, log_prob[part])


def test_categories_appear_as_often_as_they_should() -> None:
    head, _, noise = make("discrete", 40_000)
    p = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    action, _ = sample(head, np.tile(np.log(p), (40_000, 1)).astype(np.float32), noise)
    np.testing.assert_allclose(np.bincount(action, minlength=5) / 40_000, p, atol=0.01)


def test_bits_appear_as_often_as_they_should() -> None:
    head, _, noise = make("bits", 20_000)
    p = np.array([0.02, 0.2, 0.5, 0.6, 0.9, 0.99])
    action, _ = sample(head, np.tile(np.log(p / (1 - p)), (20_000, 1)).astype(np.float32), noise)
    np.testing.assert_allclose(action.reshape(-1, 6).mean(0), p, atol=0.015)


def test_gaussian_has_the_mean_and_deviation_it_says() -> None:
    head, _, noise = make("box", 20_000)
    params = np.array([0.0, 1.0, -2.0, 5.0, 0.0, -1.0, 1.0, -3.0], np.float32)
    action = sample(head, np.tile(params, (20_000, 1)), noise)[0].reshape(-1, 4)
    np.testing.assert_allclose(action.mean(0), params[:4], atol=0.07)
    np.testing.assert_allclose(action.std(0), np.exp(params[4:]), rtol=0.03)


def test_gaussian_deviation_is_bounded() -> None:
    head, _, noise = make("box", 4)
    params = np.array([[0.0] * 4 + [-1e3, 1e3, 0.0, 0.0]] * 4, np.float32)
    action, acted = sample(head, params, noise)
    log_prob, entropy = head.log_prob_entropy(torch.from_numpy(params), torch.from_numpy(action))
    assert np.isfinite(acted).all()
    assert torch.isfinite(entropy).all()
    np.testing.assert_allclose(acted, log_prob, atol=1e-4)


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(["discrete", "multi"]), seed=st.integers(0, 10_000), scale=st.sampled_from([1.0, 50.0]))
def test_illegal_actions_are_never_chosen(kind: str, seed: int, scale: float) -> None:
    head, params, noise = make(kind, 64, seed)
    params *= np.float32(scale)
    sizes = [5] if kind == "discrete" else [3, 2, 4]
    draw = np.random.default_rng(seed)
    mask = draw.random(params.shape) < 0.4
    for row in mask:  # at least one legal action in every part
        row[np.cumsum([0, *sizes[:-1]]) + draw.integers(0, sizes)] = True
    for action in (sample(head, params, noise, mask)[0], head.mode(params, mask)):
        columns = action.reshape(64, -1) + np.cumsum([0, *sizes[:-1]])
        assert np.take_along_axis(mask, columns, 1).all()
    action, acted = sample(head, params, noise, mask)
    leaf = torch.from_numpy(params).requires_grad_()
    log_prob, entropy = head.log_prob_entropy(leaf, torch.from_numpy(action), torch.from_numpy(mask))
    (log_prob.sum() + entropy.sum()).backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(acted, log_prob.detach(), atol=2e-5 * scale)
    assert torch.isfinite(entropy).all()
    assert (leaf.grad[torch.from_numpy(~mask)] == 0).all(), "illegal logits must not be trained"
    assert torch.isfinite(leaf.grad).all()


def test_a_single_legal_action_is_certain() -> None:
    head, params, noise = make("discrete", 3)
    mask = np.eye(5, dtype=bool)[[4, 0, 2]]
    action, log_prob = sample(head, params, noise, mask)
    assert action.tolist() == [4, 0, 2]
    assert log_prob.tolist() == [0.0] * 3


def test_noise_never_overflows_a_log_probability() -> None:
    head, _, _ = make("discrete", 1)

    class Extreme(np.random.Generator):
        def standard_exponential(self, *args: Any, **kwargs: Any) -> Any:
            return np.array([[0.0, 1e30, 1.0, 1.0, 1.0]], np.float32)

    noise = head.draw_noise(Extreme(np.random.PCG64(0)), (1,))
    assert np.isfinite(noise).all()
    _, log_prob = sample(head, np.zeros((1, 5), np.float32), noise)
    assert log_prob[0] == pytest.approx(-np.log(5), abs=1e-6)


def test_an_unknown_action_kind_raises() -> None:
    with pytest.raises(ConfigError, match="is empty"):
        EnvSpec.of(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (0,), np.float32))

"""Closed-form gradients of log-probability and entropy against autograd, for every action head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from paceline.ops.distributions import head_for
from paceline.ops.scores import score
from paceline.spec import EnvSpec

N = 17
SPACES = {
    "discrete": spaces.Discrete(5),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "multi_binary": spaces.MultiBinary(4),
    "box": spaces.Box(-2, 2, (3,), np.float32),
}


def case(name: str) -> tuple[EnvSpec, Tensor, Tensor]:
    spec = EnvSpec.of(spaces.Box(-1, 1, (2,), np.float32), SPACES[name])
    generator = torch.Generator().manual_seed(3)
    params = torch.randn(N, spec.action.param_size, generator=generator)
    space = SPACES[name]
    space.seed(0)
    action = torch.from_numpy(np.stack([np.asarray(space.sample()) for _ in range(N)]))
    return spec, params, action


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", SPACES)
def test_scores_and_their_gradients_are_those_of_autograd(name: str, masked: bool) -> None:
    spec, params, action = case(name)
    if masked and not spec.action.mask_size:
        pytest.skip("masks fit categories only")
    head = head_for(spec.action)
    mask = None
    if masked:
        mask = torch.rand(N, spec.action.mask_size, generator=torch.Generator().manual_seed(1)) < 0.6
        chosen = action.reshape(N, -1)
        offsets = np.cumsum([0, *spec.action.nvec[:-1]])
        for column, offset in enumerate(offsets):
            mask[torch.arange(N), chosen[:, column] + int(offset)] = True
    leaf = params.clone().requires_grad_()
    log_prob, entropy = head.log_prob_entropy(leaf, action, mask)
    d_log_prob, d_entropy = torch.randn(N), 0.37
    (expected,) = torch.autograd.grad((log_prob, entropy), leaf, (d_log_prob, torch.full((N,), d_entropy)))

    scored = score(head, params.numpy(), action.numpy(), None if mask is None else mask.numpy())
    np.testing.assert_allclose(scored.log_prob, log_prob.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scored.entropy, entropy.detach().numpy(), rtol=1e-5, atol=1e-6)
    pulled = scored.pullback(d_log_prob.numpy(), d_entropy)
    np.testing.assert_allclose(pulled, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert {scored.log_prob.dtype, scored.entropy.dtype, pulled.dtype} == {np.dtype(np.float32)}
    again = score(head, params.numpy(), action.numpy(), None if mask is None else mask.numpy())
    without = again.pullback(d_log_prob.numpy(), 0.0)
    (only,) = torch.autograd.grad(head.log_prob_entropy(leaf, action, mask)[0], leaf, d_log_prob)
    np.testing.assert_allclose(without, only.numpy(), rtol=1e-4, atol=1e-5)


def test_a_deviation_at_its_limit_has_no_gradient() -> None:
    spec, params, action = case("box")
    params[:, 3:] = torch.tensor([-25.0, 0.0, 5.0])
    scored = score(head_for(spec.action), params.numpy(), action.numpy())
    pulled = scored.pullback(np.zeros(N, np.float32), 1.0)
    assert pulled[:, 3:].tolist() == [[0.0, 1.0, 0.0]] * N

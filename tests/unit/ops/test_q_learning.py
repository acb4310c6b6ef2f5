"""Q-learning functions against slow definitions, and their gradients against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paceline.ops.q_learning import Loss, best_legal, bootstrap_targets, loss_and_slope, q_pullback, q_values

RNG = np.random.default_rng(0)
PARAMS, VALUE = RNG.normal(size=(7, 4)).astype(np.float32), RNG.normal(size=7).astype(np.float32)


@pytest.mark.parametrize("dueling", [True, False])
def test_q_values_and_their_gradient(dueling: bool) -> None:
    q = q_values(PARAMS, VALUE, dueling=dueling)
    params, value = (torch.from_numpy(part).requires_grad_() for part in (PARAMS, VALUE))
    by_torch = value[:, None] + params - params.mean(1, keepdim=True) if dueling else params * 1.0
    for row in range(7):
        for action in range(4):
            expected = PARAMS[row, action]
            if dueling:
                expected = VALUE[row] + PARAMS[row, action] - sum(PARAMS[row, a] for a in range(4)) / 4
            assert q[row, action] == pytest.approx(expected, abs=1e-6)
    slope = RNG.normal(size=(7, 4)).astype(np.float32)
    by_torch.backward(torch.from_numpy(slope))
    d_params, d_value = q_pullback(slope, dueling=dueling)
    assert params.grad is not None
    np.testing.assert_allclose(d_params, params.grad, atol=1e-6)
    np.testing.assert_allclose(d_value, value.grad if value.grad is not None else np.zeros(7), atol=1e-6)


def test_the_best_action_is_a_legal_one() -> None:
    q = np.array([[3.0, 2.0, 1.0], [-5.0, -6.0, -7.0]], np.float32)
    mask = np.array([[False, True, True], [False, False, True]])
    assert best_legal(q, mask).tolist() == [1, 2]
    assert best_legal(q, None).tolist() == [0, 0]


def test_double_dqn_chooses_with_one_network_and_evaluates_with_the_other() -> None:
    reward, discount = np.array([1.0, 2.0], np.float32), np.array([0.5, 0.0], np.float32)
    chooser = np.array([[0.0, 1.0], [5.0, 0.0]], np.float32)
    judge = np.array([[10.0, 20.0], [7.0, 8.0]], np.float32)
    assert bootstrap_targets(reward, discount, chooser, judge, None).tolist() == [1.0 + 0.5 * 20.0, 2.0]
    mask = np.array([[True, False], [True, True]])
    assert bootstrap_targets(reward, discount, chooser, judge, mask).tolist() == [1.0 + 0.5 * 10.0, 2.0]


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_loss_and_its_slope(kind: Loss) -> None:
    error = np.array([-3.0, -1.0, -0.4, 0.0, 0.7, 1.0, 5.0], np.float32)
    loss, slope = loss_and_slope(error, kind)
    expected = [0.5 * e * e if kind == "mse" or abs(e) <= 1 else abs(e) - 0.5 for e in error.tolist()]
    np.testing.assert_allclose(loss, expected, atol=1e-6)
    by_torch = torch.from_numpy(error).requires_grad_()
    if kind == "mse":
        (0.5 * by_torch.square()).sum().backward()
    else:
        torch.nn.functional.huber_loss(by_torch, torch.zeros(7), reduction="sum").backward()
    assert by_torch.grad is not None
    np.testing.assert_allclose(slope, by_torch.grad, atol=1e-6)

"""The maths of Q-learning against slow copies of their definitions, and slopes against autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.ops.q_learning import Loss, best_legal, bootstrap_targets, loss_and_slope, q_pullback, q_values


@pytest.fixture
def outputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 4, generator=generator), torch.randn(7, generator=generator)


@pytest.mark.parametrize("dueling", [True, False])
def test_action_values_and_the_way_back(outputs: tuple[Tensor, Tensor], dueling: bool) -> None:
    params, value = (part.clone().requires_grad_() for part in outputs)
    q = q_values(params, value, dueling=dueling)
    for row in range(7):
        for action in range(4):
            expected = params[row, action]
            if dueling:
                expected = value[row] + params[row, action] - sum(params[row, a] for a in range(4)) / 4
            torch.testing.assert_close(q[row, action], expected)
    slope = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    q.backward(slope)
    d_params, d_value = q_pullback(slope, dueling=dueling)
    torch.testing.assert_close(d_params, params.grad)
    torch.testing.assert_close(d_value, value.grad if dueling else torch.zeros(7))


def test_the_best_action_is_a_legal_one() -> None:
    q = torch.tensor([[3.0, 2.0, 1.0], [-5.0, -6.0, -7.0]])
    mask = torch.tensor([[False, True, True], [False, False, True]])
    assert best_legal(q, mask).tolist() == [1, 2]
    assert best_legal(q, None).tolist() == [0, 0]


def test_double_lets_one_choose_and_the_other_judge() -> None:
    reward, discount = torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0])
    chooser = torch.tensor([[0.0, 1.0], [5.0, 0.0]])
    judge = torch.tensor([[10.0, 20.0], [7.0, 8.0]])
    assert bootstrap_targets(reward, discount, chooser, judge, None).tolist() == [1.0 + 0.9 * 20.0, 2.0]
    mask = torch.tensor([[True, False], [True, True]])
    assert bootstrap_targets(reward, discount, chooser, judge, mask).tolist() == [1.0 + 0.9 * 10.0, 2.0]


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_loss_and_its_slope(kind: Loss) -> None:
    error = torch.tensor([-3.0, -1.0, -0.4, 0.0, 0.7, 1.0, 5.0], requires_grad=True)
    loss, slope = loss_and_slope(error, kind)
    expected = [0.5 * e * e if kind == "mse" or abs(e) <= 1 else abs(e) - 0.5 for e in error.tolist()]
    torch.testing.assert_close(loss, torch.tensor(expected))
    loss.sum().backward()
    torch.testing.assert_close(slope, error.grad)

"""`FlatRMSProp` equals its definition."""

from __future__ import annotations

import torch

from paceline.ops.rmsprop import FlatRMSProp


def test_rmsprop_equals_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(50, generator=generator)
    expected, square = vector.clone().double(), torch.zeros(50, dtype=torch.float64)
    rmsprop = FlatRMSProp(vector, eps=1e-5, decay=0.9)
    for _ in range(20):
        grad = torch.randn(50, generator=generator)
        rmsprop.step(grad, 0.01)
        square = 0.9 * square + 0.1 * grad.double() ** 2
        expected -= 0.01 * grad.double() / (square + 1e-5).sqrt()
    torch.testing.assert_close(vector, expected.float(), rtol=1e-4, atol=1e-5)


def test_rmsprop_mean_square_may_be_shared_and_round_trips() -> None:
    square, grad = torch.zeros(8), torch.ones(8)
    one, other = FlatRMSProp(torch.zeros(8), square=square), FlatRMSProp(torch.zeros(8), square=square)
    one.step(grad, 0.1)
    assert (square > 0).all()
    state = {key: value.copy() for key, value in other.state().items()}
    other.step(grad, 0.1)
    other.load(state)
    assert square.tolist() == state["square"].tolist()

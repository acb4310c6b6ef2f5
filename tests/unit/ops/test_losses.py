"""Each loss term against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.ops import losses


def test_policy_loss_is_the_plain_gradient_where_nothing_is_clipped() -> None:
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    advantage = torch.tensor([3.0, -1.0])
    loss, log_ratio = losses.clipped_policy_loss(log_prob, log_prob.detach(), advantage, 0.2)
    loss.backward()
    assert loss.item() == pytest.approx(-1.0)
    torch.testing.assert_close(log_prob.grad, -advantage / 2)
    assert log_ratio.tolist() == [0.0, 0.0]
    assert not log_ratio.requires_grad


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "moves"),
    [
        (1.5, 1.0, -1.2, False),  # already better than trusted: no further
        (1.5, -1.0, 1.5, True),  # worse, and must come back
        (0.5, 1.0, -0.5, True),
        (0.5, -1.0, 0.8, False),
    ],
)
def test_policy_loss_clips_gains_and_never_losses(ratio: float, advantage: float, expected: float, moves: bool) -> None:
    log_prob = torch.tensor([math.log(ratio)], requires_grad=True)
    loss, _ = losses.clipped_policy_loss(log_prob, torch.zeros(1), torch.tensor([advantage]), 0.2)
    loss.backward()
    assert log_prob.grad is not None
    assert loss.item() == pytest.approx(expected)
    assert (log_prob.grad.item() != 0.0) is moves


def test_value_loss_with_and_without_clipping() -> None:
    value, old, returns = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 0.0]), torch.tensor([3.0, 1.0])
    assert losses.value_loss(value, returns).item() == pytest.approx((1 + 1) / 2)
    # The first moved by 2 and is judged as if it had moved by 0.5: (0.5 - 3)^2.
    assert losses.value_loss(value, returns, old, 0.5).item() == pytest.approx((6.25 + 1) / 2)


def test_standardise() -> None:
    result = losses.standardise(torch.tensor([1.0, 2.0, 3.0, 10.0]))
    assert result.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert result.std().item() == pytest.approx(1.0, abs=1e-6)
    assert losses.standardise(torch.tensor([5.0])).tolist() == [5.0]
    assert losses.standardise(torch.full((4,), 5.0)).tolist() == [0.0] * 4


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=20))
def test_approx_kl_is_never_negative(log_ratio: list[float]) -> None:
    assert losses.approx_kl(torch.tensor(log_ratio)).item() >= -1e-6


def test_approx_kl_estimates_the_divergence() -> None:
    draw = torch.Generator().manual_seed(0)
    old, new = torch.tensor([0.7, 0.3]), torch.tensor([0.6, 0.4])
    sample = torch.multinomial(old, 20_000, replacement=True, generator=draw)
    estimate = losses.approx_kl(new.log()[sample] - old.log()[sample])
    assert estimate.item() == pytest.approx((old * (old / new).log()).sum().item(), rel=0.05)


def test_clip_fraction_counts_both_sides() -> None:
    log_ratio = torch.tensor([0.5, 1.0, 1.1, 1.3]).log()
    assert losses.clip_fraction(log_ratio, 0.2).item() == 0.5


def test_entropy_loss_rewards_entropy() -> None:
    assert losses.entropy_loss(torch.tensor([1.0, 2.0])).item() == -1.5


def test_explained_variance() -> None:
    returns = torch.tensor([1.0, 2.0, 3.0])
    assert losses.explained_variance(returns, returns) == 1.0
    assert losses.explained_variance(torch.full((3,), 2.0), returns) == 0.0
    assert losses.explained_variance(-returns, returns) < 0
    assert math.isnan(losses.explained_variance(returns, torch.ones(3)))

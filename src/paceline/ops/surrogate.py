"""PPO's objective and its gradient by what the network puts out, in closed form.

    loss = mean( -min(ratio A, clip(ratio) A) - ent_coef H + vf_coef (value - returns)^2 )

A minibatch may be cut into shards: sums over a shard, divided by the size of the whole, add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TERMS = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")


@dataclass(frozen=True, slots=True)
class Surrogate:
    """The terms of the loss over some rows, and its gradients by row."""

    terms: Tensor  # [5]  shares of the means over the whole minibatch, in the order of TERMS
    d_log_prob: Tensor  # [N]
    d_entropy: Tensor  # [N]
    d_value: Tensor  # [N]


@torch.no_grad()
def surrogate(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    *,
    old_log_prob: Tensor,
    advantage: Tensor,
    returns: Tensor,
    old_value: Tensor,
    total: int,
    clip_range: float,
    clip_range_vf: float | None,
    ent_coef: float,
    vf_coef: float,
) -> Surrogate:
    """All arguments are `[N]`, of the N rows of one shard.

    Args:
        log_prob: Of the actions taken, under the policy being learned.
        entropy: Of that policy.
        value: Its predictions.
        old_log_prob: Under the policy that acted.
        advantage: Usually standardised over the whole minibatch.
        returns: Targets of the value function.
        old_value: Predictions while acting.
        total: Rows of the whole minibatch.
        clip_range: Nothing is gained by moving the ratio of probabilities beyond `1 +- clip_range`.
        clip_range_vf: The same for moving a value away from `old_value`; None leaves it free.
        ent_coef: Weight of the entropy bonus.
        vf_coef: Weight of the value loss.
    """
    scale = 1.0 / total
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    gain = ratio * advantage
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range).mul_(advantage)
    # Where clipping bites, the objective is flat; elsewhere d(ratio A)/d(log_prob) is ratio A itself.
    d_log_prob = torch.where(gain <= clipped, gain, 0.0).mul_(-scale)

    error = value - returns
    squared = error.square()
    d_value = error * (2.0 * vf_coef * scale)
    if clip_range_vf is not None:
        moved = value - old_value
        near = (old_value + moved.clamp(-clip_range_vf, clip_range_vf) - returns).square_()
        # Beyond the range, and with the clipped error the larger one: moving back gains nothing.
        d_value.masked_fill_((near > squared) & (moved.abs() > clip_range_vf), 0.0)
        squared = torch.maximum(squared, near)

    drift = ratio - 1.0
    rows = (
        torch.minimum(gain, clipped).neg_(),
        squared,
        -entropy,
        drift - log_ratio,
        (drift.abs() > clip_range).to(value.dtype),
    )
    d_entropy = torch.full_like(entropy, -ent_coef * scale)
    return Surrogate(torch.stack(rows).sum(1).mul_(scale), d_log_prob, d_entropy, d_value)

"""PPO's clipped objective and its gradient by the network's outputs, in closed form.

    loss = mean( -min(ratio A, clip(ratio) A) - ent_coef H + vf_coef (value - returns)^2 )

A minibatch may be split into shards: each shard divides its sums by the size of the whole minibatch, so shards add up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

TERMS = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")


@dataclass(frozen=True, slots=True)
class Surrogate:
    """Loss terms of one shard, and the gradients by the network's outputs."""

    terms: tuple[float, ...]
    """This shard's contributions to the means over the whole minibatch, in the order of TERMS."""
    d_log_prob: Floats  # [N]
    d_entropy: float
    """Gradient by the entropy, the same for every row."""
    d_value: Floats  # [N]


def surrogate(
    log_prob: Floats,
    entropy: Floats,
    value: Floats,
    *,
    old_log_prob: Floats,
    advantage: Floats,
    returns: Floats,
    old_value: Floats,
    total: int,
    clip_range: float,
    clip_range_vf: float | None,
    ent_coef: float,
    vf_coef: float,
) -> Surrogate:
    """Compute the loss terms and gradients of one shard. All arrays are `[N]`, its N rows.

    Args:
        log_prob: Log-probability of the stored actions under the policy being learned.
        entropy: Entropy of that policy.
        value: Values predicted by the network being learned.
        old_log_prob: Log-probability under the policy that the ratio compares with: the one that collected the data, or
            for IMPALA the learner's before this update.
        advantage: Advantages; the caller may have standardised them over the whole minibatch.
        returns: Targets of the value function.
        old_value: Values before this update.
        total: Rows of the whole minibatch.
        clip_range: The probability ratio is clipped to `1 +- clip_range`.
        clip_range_vf: The value is clipped to `old_value +- clip_range_vf`; None disables that.
        ent_coef: Weight of the entropy bonus.
        vf_coef: Weight of the value loss.
    """
    log_ratio = log_prob - old_log_prob
    ratio = np.exp(log_ratio)
    gain = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip_range), 1.0 + clip_range) * advantage
    # Where the clipped term is the minimum the gradient is zero; elsewhere d(ratio A)/d(log_prob) is ratio A itself.
    d_log_prob = np.where(gain <= clipped, gain * (-1.0 / total), gain.dtype.type(0))

    error = value - returns
    squared = error * error
    d_value = error * (2.0 * vf_coef / total)
    if clip_range_vf is not None:
        moved = value - old_value
        near = old_value + np.clip(moved, -clip_range_vf, clip_range_vf) - returns
        near *= near
        # Outside the range and with the clipped error the larger one, the loss is constant in `value`: zero gradient.
        d_value[(near > squared) & (np.abs(moved) > clip_range_vf)] = 0.0
        squared = np.maximum(squared, near)

    drift = ratio - 1.0
    add = np.add.reduce
    sums = (
        -add(np.minimum(gain, clipped)),
        add(squared),
        -add(entropy),
        add(drift - log_ratio),
        np.count_nonzero(np.abs(drift) > clip_range),
    )
    return Surrogate(tuple(float(s) / total for s in sums), d_log_prob, -ent_coef / total, d_value)

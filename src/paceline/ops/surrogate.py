"""PPO's objective and its gradient by what the network puts out, in closed form.

    loss = mean( -min(ratio A, clip(ratio) A) - ent_coef H + vf_coef (value - returns)^2 )

A minibatch may be cut into shards: sums over a shard, divided by the size of the whole, add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

TERMS = ("policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl", "clip_fraction")


@dataclass(frozen=True, slots=True)
class Surrogate:
    """The terms of the loss over some rows, and its gradients."""

    terms: tuple[float, ...]
    """Shares of the means over the whole minibatch, in the order of TERMS."""
    d_log_prob: Floats  # [N]
    d_entropy: float
    """The same for every row."""
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
    """All arrays are `[N]`, of the N rows of one shard.

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
    log_ratio = log_prob - old_log_prob
    ratio = np.exp(log_ratio)
    gain = ratio * advantage
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip_range), 1.0 + clip_range) * advantage
    # Where clipping bites, the objective is flat; elsewhere d(ratio A)/d(log_prob) is ratio A itself.
    d_log_prob = np.where(gain <= clipped, gain * (-1.0 / total), gain.dtype.type(0))

    error = value - returns
    squared = error * error
    d_value = error * (2.0 * vf_coef / total)
    if clip_range_vf is not None:
        moved = value - old_value
        near = old_value + np.clip(moved, -clip_range_vf, clip_range_vf) - returns
        near *= near
        # Beyond the range, and with the clipped error the larger one: moving back gains nothing.
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

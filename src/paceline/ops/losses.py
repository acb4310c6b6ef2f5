"""The terms of a policy-gradient loss, and the numbers that say whether an update went well.

All take `[N]` tensors, one entry per step of the minibatch, and average over them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def standardise(advantage: Tensor) -> Tensor:
    """Advantages with mean 0 and deviation 1; a single one is left as it is."""
    if advantage.numel() < 2:
        return advantage
    deviation, mean = torch.std_mean(advantage)
    return (advantage - mean) / (deviation + 1e-8)


def clipped_policy_loss(
    log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip_range: float
) -> tuple[Tensor, Tensor]:
    """PPO's surrogate: nothing is gained by moving the ratio of probabilities beyond `1 +- clip_range`.

    Args:
        log_prob: Of the action taken, under the policy being learned.
        old_log_prob: Under the policy that acted.
        advantage: Usually standardised.
        clip_range: Half-width of the interval in which the ratio is trusted.

    Returns:
        The loss, and the log ratio `[N]` without gradient for `approx_kl` and `clip_fraction`.
    """
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean(), log_ratio.detach()


def value_loss(
    value: Tensor, returns: Tensor, old_value: Tensor | None = None, clip_range: float | None = None
) -> Tensor:
    """Mean squared error of the value function.

    Args:
        value: Predictions being learned.
        returns: Their targets.
        old_value: Predictions while acting; needed with `clip_range`.
        clip_range: Let predictions gain nothing by moving further than this from `old_value`.
    """
    if clip_range is None or old_value is None:
        return functional.mse_loss(value, returns)
    near = old_value + (value - old_value).clamp(-clip_range, clip_range)
    return torch.maximum((value - returns).square(), (near - returns).square()).mean()


def entropy_loss(entropy: Tensor) -> Tensor:
    """Minus the mean entropy: minimising it keeps the policy exploring."""
    return -entropy.mean()


def approx_kl(log_ratio: Tensor) -> Tensor:
    """An estimate of KL(old || new) that is never negative: the mean of `ratio - 1 - log ratio`."""
    return (log_ratio.expm1() - log_ratio).mean()


def clip_fraction(log_ratio: Tensor, clip_range: float) -> Tensor:
    """The share of steps whose ratio left `1 +- clip_range`."""
    return ((log_ratio.exp() - 1.0).abs() > clip_range).float().mean()


def explained_variance(value: Tensor, returns: Tensor) -> float:
    """How much of the returns' variance the values predict: 1 is all, 0 as good as their mean.

    NaN where the returns do not vary.
    """
    variance = returns.double().var(correction=0)
    if variance == 0:
        return float("nan")
    return float(1.0 - (returns.double() - value.double()).var(correction=0) / variance)

"""The maths of Q-learning: what a transition is worth, and the slope of the loss. Pure functions on tensors."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from paceline.ops.distributions import ILLEGAL

Loss = Literal["huber", "mse"]


def q_values(params: Tensor, value: Tensor, *, dueling: bool) -> Tensor:
    """Action values `[N, A]` from a policy's outputs.

    Args:
        params: `[N, A]` advantages; without dueling, the action values themselves.
        value: `[N]` state values; without dueling they count for nothing.
        dueling: Whether a value is the state's plus what the action is better than the mean (Wang et al. 2016).
    """
    return value.unsqueeze(1) + params - params.mean(1, keepdim=True) if dueling else params


def q_pullback(d_q: Tensor, *, dueling: bool) -> tuple[Tensor, Tensor]:
    """Slopes by `params` and `value`, from slopes by the action values: the transpose of `q_values`."""
    total = d_q.sum(1)
    if not dueling:
        return d_q, torch.zeros_like(total)
    return d_q - (total / d_q.shape[1]).unsqueeze(1), total


def best_legal(q: Tensor, mask: Tensor | None) -> Tensor:
    """The legal action of the highest value, `[N]`."""
    return (q if mask is None else q.masked_fill(~mask, ILLEGAL)).argmax(1)


def bootstrap_targets(reward: Tensor, discount: Tensor, chooser: Tensor, judge: Tensor, mask: Tensor | None) -> Tensor:
    """What each transition is worth, `[N]`.

    Args:
        reward: `[N]` discounted sum of the rewards on the way.
        discount: `[N]` of the value after them: zero where the episode was over.
        chooser: `[N, A]` values that choose the next action: the learner's own (double, van Hasselt et al. 2016), or
            the target network's.
        judge: `[N, A]` values that judge it: the target network's.
        mask: `[N, A]` the next actions that are legal.
    """
    best = best_legal(chooser, mask)
    return reward + discount * judge.gather(1, best.unsqueeze(1)).squeeze(1)


def loss_and_slope(error: Tensor, kind: Loss) -> tuple[Tensor, Tensor]:
    """Loss and its slope by the error, `[N]` each. Huber is quadratic up to an error of 1 and linear beyond."""
    if kind == "mse":
        return 0.5 * error.square(), error
    slope = error.clamp(-1.0, 1.0)
    return slope * (error - 0.5 * slope), slope

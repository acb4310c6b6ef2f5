"""The maths of Q-learning: what a transition is worth, and the slope of the loss. Pure functions on arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.ops.distributions import legal_only

Loss = Literal["huber", "mse"]
Floats = NDArray[np.float32]


def q_values(params: Floats, value: Floats, *, dueling: bool) -> Floats:
    """Action values `[N, A]` from a network's outputs.

    Args:
        params: `[N, A]` advantages; without dueling, the action values themselves.
        value: `[N]` state values; without dueling they count for nothing.
        dueling: Whether a value is the state's plus what the action is better than the mean (Wang et al. 2016).
    """
    return params + (value - params.mean(1))[:, None] if dueling else params


def q_pullback(d_q: Floats, *, dueling: bool) -> tuple[Floats, Floats]:
    """Slopes by `params` and `value`, from slopes by the action values: the transpose of `q_values`."""
    total = np.add.reduce(d_q, 1)
    if not dueling:
        return d_q, np.zeros_like(total)
    return d_q - (total / np.float32(d_q.shape[1]))[:, None], total


def best_legal(q: Floats, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """The legal action of the highest value, `[N]`."""
    best: NDArray[np.int64] = legal_only(q, mask).argmax(1)
    return best


def bootstrap_targets(
    reward: Floats, discount: Floats, chooser: Floats, judge: Floats, mask: NDArray[np.bool_] | None
) -> Floats:
    """What each transition is worth, `[N]`.

    Args:
        reward: `[N]` discounted sum of the rewards on the way.
        discount: `[N]` of the value after them: zero where the episode was over.
        chooser: `[N, A]` values that choose the next action: the learner's own (double, van Hasselt et al. 2016), or
            the target network's.
        judge: `[N, A]` values that judge it: the target network's.
        mask: `[N, A]` the next actions that are legal.
    """
    return reward + discount * judge[np.arange(len(judge)), best_legal(chooser, mask)]


def loss_and_slope(error: Floats, kind: Loss) -> tuple[Floats, Floats]:
    """Loss and its slope by the error, `[N]` each. Huber is quadratic up to an error of 1 and linear beyond."""
    half = np.float32(0.5)
    loss: Floats
    if kind == "mse":
        loss = half * error * error
        return loss, error
    slope: Floats = np.minimum(np.maximum(error, np.float32(-1.0)), np.float32(1.0))
    loss = slope * (error - half * slope)
    return loss, slope

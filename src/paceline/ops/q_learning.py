"""Q-learning: dueling values, bootstrap targets and the TD loss with its derivative. Pure functions on arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paceline.ops.distributions import legal_only

Loss = Literal["huber", "mse"]
Floats = NDArray[np.float32]


def q_values(params: Floats, value: Floats, *, dueling: bool) -> Floats:
    """Return action values `[N, A]` from the network's outputs.

    Args:
        params: `[N, A]` advantages; without dueling, the action values themselves.
        value: `[N]` state values; ignored without dueling.
        dueling: Whether Q = value + advantage - mean advantage (Wang et al. 2016).
    """
    return params + (value - params.mean(1))[:, None] if dueling else params


def q_pullback(d_q: Floats, *, dueling: bool) -> tuple[Floats, Floats]:
    """Return gradients by `params` and `value`, given the gradient by Q values: the transpose of `q_values`."""
    total = np.add.reduce(d_q, 1)
    if not dueling:
        return d_q, np.zeros_like(total)
    return d_q - (total / np.float32(d_q.shape[1]))[:, None], total


def best_legal(q: Floats, mask: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    """Return the legal action with the highest value, `[N]`."""
    best: NDArray[np.int64] = legal_only(q, mask).argmax(1)
    return best


def bootstrap_targets(
    reward: Floats, discount: Floats, chooser: Floats, judge: Floats, mask: NDArray[np.bool_] | None
) -> Floats:
    """Return the TD targets `[N]`.

    Args:
        reward: `[N]` discounted sum of the n-step rewards.
        discount: `[N]` factor of the bootstrap value: zero where the episode terminated.
        chooser: `[N, A]` values whose argmax is the next action: of the online network (double DQN, van Hasselt et al.
            2016), or of the target network.
        judge: `[N, A]` values of the target network, which evaluate that action.
        mask: `[N, A]` legal actions in the next state.
    """
    return reward + discount * judge[np.arange(len(judge)), best_legal(chooser, mask)]


def loss_and_slope(error: Floats, kind: Loss) -> tuple[Floats, Floats]:
    """Return the loss and its derivative by the TD error, `[N]` each. Huber is quadratic up to an error of 1."""
    half = np.float32(0.5)
    loss: Floats
    if kind == "mse":
        loss = half * error * error
        return loss, error
    slope: Floats = np.minimum(np.maximum(error, np.float32(-1.0)), np.float32(1.0))
    loss = slope * (error - half * slope)
    return loss, slope

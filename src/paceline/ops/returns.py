"""Advantages and returns from `[T, B]` tensors; every env is a column of its own."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def next_values(value: Tensor, finals_t: Tensor, finals_env: Tensor, finals_value: Tensor) -> Tensor:
    """The value of what followed each step, `[T, B]`.

    Args:
        value: `[T+1, B]` of the observations the policy saw. After an episode's end the next row
            is the first of a new episode, so it says nothing about the step.
        finals_t: `[N]` steps at which an episode was truncated.
        finals_env: `[N]` envs in which that happened.
        finals_value: `[N]` values of the last real observations there.
    """
    # In numpy, whose calls on arrays of this size cost half of torch's.
    after = value[1:].numpy().copy()
    after[finals_t.numpy(), finals_env.numpy()] = finals_value.numpy()
    return torch.from_numpy(after)


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al., 2015); all tensors are `[T, B]`, on the CPU.

        delta[t]     = reward[t] + gamma next_value[t] (unless terminated) - value[t]
        advantage[t] = delta[t] + gamma lam advantage[t+1] (unless ended)

    Args:
        reward: Of each step.
        value: Of the observation before each step.
        next_value: Of the observation after it (see `next_values`).
        terminated: The step led to a terminal state, whose value is zero.
        ended: The step was the last of its episode, terminated or truncated: nothing that follows
            in the column reaches back over it.
        gamma: Discount.
        lam: Weight of longer returns.

    Returns:
        Advantages, and returns (advantage + value), the targets of the value function.
    """
    advantage = np.where(terminated.numpy(), np.float32(0.0), next_value.numpy())
    advantage *= np.float32(gamma)
    advantage += reward.numpy()
    advantage -= value.numpy()
    accumulate(advantage, np.where(ended.numpy(), np.float32(0.0), np.float32(gamma * lam)))
    result = torch.from_numpy(advantage)
    return result, result + value


def accumulate(terms: NDArray[np.float32], decay: NDArray[np.float32]) -> None:
    """Turn d into the solution of x[t] = d[t] + decay[t] x[t+1], in place; `decay` is used up. Both are `[T, B]`."""
    # For all t at once, by doubling: after each pass x[t] holds twice as many terms. log2(T) passes over whole
    # arrays take a third of the time of T small steps (benchmarks/kernels.py).
    reach = 1
    while reach < len(terms):
        terms[:-reach] += decay[:-reach] * terms[reach:]
        decay[:-reach] *= decay[reach:]
        reach *= 2


def explained_variance(value: NDArray[np.float32], returns: NDArray[np.float32]) -> float:
    """How much of the returns' variance the values predict: 1 is all, 0 as good as their mean.

    NaN where the returns do not vary, or there are none.
    """
    variance = returns.var(dtype=np.float64) if len(returns) else 0.0
    if variance == 0:
        return float("nan")
    return float(1.0 - np.subtract(returns, value, dtype=np.float64).var() / variance)

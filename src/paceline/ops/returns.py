"""Advantages and returns from `[T, B]` tensors; each column is one env."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def next_values(value: Tensor, finals_t: Tensor, finals_env: Tensor, finals_value: Tensor) -> Tensor:
    """Return V of the observation after each step, `[T, B]`.

    Args:
        value: `[T+1, B]` values of the observations that the policy saw. After the end of an episode the next
            row belongs to a new episode, so its value must not be used for the step.
        finals_t: `[N]` time index of each truncated episode's last step.
        finals_env: `[N]` env of each truncated episode.
        finals_value: `[N]` value of each truncated episode's last observation.
    """
    # In numpy, whose calls on arrays of this size cost half as much as torch's.
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
        reward: Reward of each step.
        value: V of the observation before each step.
        next_value: V of the observation after each step (see `next_values`).
        terminated: The step led to a terminal state, whose value is zero.
        ended: The step was the last of its episode, terminated or truncated. Later rows of the column
            do not contribute to its advantage.
        gamma: Discount.
        lam: GAE lambda; 0 trusts the critic, 1 gives Monte-Carlo returns.

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
    """Solve x[t] = terms[t] + decay[t] x[t+1], in place in `terms`; `decay` is overwritten. Both are `[T, B]`."""
    # Computes all t at once by doubling: after each pass x[t] sums twice as many terms. log2(T) passes over whole
    # arrays take a third of the time of T small steps (make bench-kernels).
    reach = 1
    while reach < len(terms):
        terms[:-reach] += decay[:-reach] * terms[reach:]
        decay[:-reach] *= decay[reach:]
        reach *= 2


def explained_variance(value: NDArray[np.float32], returns: NDArray[np.float32]) -> float:
    """Return the fraction of the returns' variance that the values explain: 1 is perfect, 0 no better than the mean.

    NaN if the returns are constant or empty.
    """
    variance = returns.var(dtype=np.float64) if len(returns) else 0.0
    if variance == 0:
        return float("nan")
    return float(1.0 - np.subtract(returns, value, dtype=np.float64).var() / variance)

"""V-trace (Espeholt et al. 2018): value targets and advantages for data collected by an older policy.

    rho[t]    = min(rho_clip, pi(a|x) / mu(a|x))          importance weight of the step itself
    c[t]      = lam min(c_clip, pi(a|x) / mu(a|x))        how strongly later steps contribute to this one
    delta[t]  = rho[t] (reward[t] + gamma V(x[t+1]) - V(x[t]))
    vs[t]     = V(x[t]) + delta[t] + gamma c[t] (vs[t+1] - V(x[t+1]))
    advantage[t] = reward[t] + gamma vs[t+1] - V(x[t])    weighted with rho[t] in the policy gradient

On-policy and with both clips at 1 it equals the n-step return (with lam < 1, the exponential mixture of them).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.ops.returns import accumulate

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class VTrace:
    """Result of `vtrace`; all arrays are `[T, B]`."""

    vs: Floats
    """Targets of the value function."""
    advantage: Floats
    """Advantage of each action. The importance weight rho is not included."""
    rho: Floats
    """Clipped importance weights."""


def vtrace(
    log_ratio: Floats,
    reward: Floats,
    value: Floats,
    next_value: Floats,
    terminated: Bools,
    ended: Bools,
    *,
    gamma: float,
    lam: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> VTrace:
    """Compute V-trace targets for `[T, B]` data; each column is one env.

    Args:
        log_ratio: log pi(a|x) - log mu(a|x): the policy being learned against the one that collected the data.
        reward: Reward of each step.
        value: V of the observation before each step, by the network being learned.
        next_value: V of the observation after each step; at a truncation, of the episode's last observation.
        terminated: The step led to a terminal state, whose value is zero.
        ended: The step was the last of its episode; later rows of the column do not contribute to it.
        gamma: Discount.
        lam: Weight of longer returns.
        rho_clip: Upper bound of rho; it determines to which policy's value function the targets converge.
        c_clip: Upper bound of c; it determines how fast they converge.
    """
    discount = np.float32(gamma)
    ratio: Floats = np.exp(log_ratio)
    rho = np.minimum(np.float32(rho_clip), ratio)
    after: Floats = np.where(terminated, np.float32(0.0), next_value)
    correction: Floats = rho * (reward + discount * after - value)
    decay = np.minimum(np.float32(c_clip), ratio) * np.float32(gamma * lam)
    decay[ended] = 0.0
    accumulate(correction, decay)
    vs: Floats = value + correction
    # vs of the next step. The last row and the ends of episodes have no vs[t+1], so they bootstrap from the network.
    vs_after = after.copy()
    vs_after[:-1] = np.where(ended[:-1], after[:-1], vs[1:])
    advantage: Floats = reward + discount * vs_after - value
    return VTrace(vs, advantage, rho)

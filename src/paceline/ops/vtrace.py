"""V-trace (Espeholt et al. 2018): value targets and advantages for data of an older policy.

    rho[t]    = min(rho_clip, pi(a|x) / mu(a|x))          how much of the newer policy is in the step
    c[t]      = lam min(c_clip, pi(a|x) / mu(a|x))        how far what comes later reaches back
    delta[t]  = rho[t] (reward[t] + gamma V(x[t+1]) - V(x[t]))
    vs[t]     = V(x[t]) + delta[t] + gamma c[t] (vs[t+1] - V(x[t+1]))
    advantage[t] = reward[t] + gamma vs[t+1] - V(x[t])    weighted with rho[t] in the policy gradient

With data of the policy itself and clips at one it is the n-step return (times lam, its exponential mixture).
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
    """All `[T, B]`."""

    vs: Floats
    """Targets of the value function."""
    advantage: Floats
    """How much better than expected each action was. The importance weight is not in it."""
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
    """Correct `[T, B]` data; every env is a column of its own.

    Args:
        log_ratio: log pi(a|x) - log mu(a|x), of the policy being learned and the one that acted.
        reward: Of each step.
        value: V of the observation before each step, by the network being learned.
        next_value: V of the observation after it; at a truncation of the episode's last one.
        terminated: The step led to a terminal state, whose value is zero.
        ended: The step was the last of its episode; nothing that follows in the column reaches back over it.
        gamma: Discount.
        lam: Weight of longer returns.
        rho_clip: Largest importance weight of a step's own error; decides which policy the values are of.
        c_clip: Largest weight of what comes later; decides how fast they are learned.
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
    # What the step after this one is worth by then; the last row and ends of episodes have only the network's word.
    vs_after = after.copy()
    vs_after[:-1] = np.where(ended[:-1], after[:-1], vs[1:])
    advantage: Floats = reward + discount * vs_after - value
    return VTrace(vs, advantage, rho)

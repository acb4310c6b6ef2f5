"""The records that travel from the envs to the optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Finals:
    """Last real observations of episodes that were truncated inside the rollout.

    The row after such a step holds the next episode's first observation, so this is the only
    place where a bootstrap value can come from.
    """

    t: Tensor  # [N] int64
    env: Tensor  # [N] int64
    obs: dict[str, Tensor]  # [N, *leaf]
    value: Tensor  # [N]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """T steps of B envs, all acted by one weights version. Views of shared memory: do not keep.

    Row t of `obs` is what the policy saw before `action[t]`; row T is what it sees next.
    """

    obs: dict[str, Tensor]  # [T+1, B, *leaf]  by leaf name
    mask: Tensor | None  # [T+1, B, M] bool    legal actions
    action: Tensor  # [T, B, *act]
    reward: Tensor  # [T, B]                   to be learned from: the env's own, or shaped
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    valid: Tensor  # [T, B] bool               False: a vector env's own reset row
    log_prob: Tensor  # [T, B]                 under the acting policy
    value: Tensor  # [T+1, B]                  under the acting policy
    finals: Finals
    version: int
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # [T+1, B, ...]  beside the observations


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of T steps of some envs, for whoever counts. Views of shared memory: do not keep."""

    reward: NDArray[np.float32]  # [T, n]            the env's own
    terminated: NDArray[np.bool_]  # [T, n]
    truncated: NDArray[np.bool_]  # [T, n]
    valid: NDArray[np.bool_]  # [T, n]
    told: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # [T, n]  parts of a shaped reward, measures


@dataclass(frozen=True, slots=True)
class Transitions:
    """N single steps, or several taken as one, drawn from a replay. Its own memory."""

    obs: dict[str, NDArray[Any]]  # [N, *leaf]       by leaf name
    action: NDArray[np.int64]  # [N]
    reward: NDArray[np.float32]  # [N]               discounted sum of the steps
    discount: NDArray[np.float32]  # [N]             of what follows them; 0 where the episode was over
    next_obs: dict[str, NDArray[Any]]  # [N, *leaf]  what follows: of a truncated episode its own last
    next_mask: NDArray[np.bool_] | None  # [N, M]    legal actions there

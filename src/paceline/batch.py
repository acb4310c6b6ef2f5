"""Records that pass from the envs to the optimiser: rollouts, their results, and replayed transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Finals:
    """Last observations of the episodes that were truncated inside a rollout.

    The row after a truncated step already holds the first observation of the next episode.
    So the bootstrap value of a truncated episode can only come from here.
    """

    t: Tensor  # [N] int64
    env: Tensor  # [N] int64
    obs: dict[str, Tensor]  # [N, *leaf]
    value: Tensor  # [N]


@dataclass(frozen=True, slots=True)
class Trajectory:
    """T steps of B envs. Views of shared memory: do not keep.

    Synchronous algorithms collect all of it with one version of the weights; in asynchronous ones `version` is the
    oldest of several.

    Row t of `obs` is what the policy saw before `action[t]`; row T is the observation after the last step.
    """

    obs: dict[str, Tensor]  # [T+1, B, *leaf]  by leaf name
    mask: Tensor | None  # [T+1, B, M] bool    legal actions
    action: Tensor  # [T, B, *act]
    reward: Tensor  # [T, B]                   what the learner uses: the env's own reward, or shaped
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    valid: Tensor  # [T, B] bool               False: the row in which a vector env only reset
    log_prob: Tensor  # [T, B]                 under the acting policy
    value: Tensor  # [T+1, B]                  under the acting policy
    finals: Finals
    version: int
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # [T+1, B, ...]  arrays read beside the observations


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rewards and episode ends of T steps of n envs, for statistics. Views of shared memory: do not keep."""

    reward: NDArray[np.float32]  # [T, n]            the env's own, unshaped
    terminated: NDArray[np.bool_]  # [T, n]
    truncated: NDArray[np.bool_]  # [T, n]
    valid: NDArray[np.bool_]  # [T, n]
    success: NDArray[
        np.int8
    ]  # [T, n]              `spec.SUCCEEDED` or `FAILED` where an env judged its episode, else 0
    reward_parts: Mapping[str, NDArray[np.float32]] = field(
        default_factory=dict
    )  # [T, n]  reward parts and measures by name


@dataclass(frozen=True, slots=True)
class Transitions:
    """N transitions (n-step ones with `multi_step` > 1) drawn from a replay. Owns its memory."""

    obs: dict[str, NDArray[Any]]  # [N, *leaf]       by leaf name
    action: NDArray[np.int64]  # [N]
    reward: NDArray[np.float32]  # [N]               discounted sum over the n steps
    discount: NDArray[np.float32]  # [N]             factor of the bootstrap value; 0 if the episode terminated
    next_obs: dict[str, NDArray[Any]]  # [N, *leaf]  observation after the n steps; if truncated, the episode's last
    next_mask: NDArray[np.bool_] | None  # [N, M]    legal actions in `next_obs`

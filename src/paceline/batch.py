"""The records that travel from the envs to the optimiser."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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
    reward: Tensor  # [T, B]                   as the env gave it
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    valid: Tensor  # [T, B] bool               False: a vector env's own reset row
    log_prob: Tensor  # [T, B]                 under the acting policy
    value: Tensor  # [T+1, B]                  under the acting policy
    finals: Finals
    version: int


@dataclass(frozen=True, slots=True)
class Transitions:
    """N single steps, or several taken as one, drawn from a replay. Its own memory."""

    obs: dict[str, Tensor]  # [N, *leaf]       by leaf name
    action: Tensor  # [N, *act]
    reward: Tensor  # [N]                      discounted sum of the steps
    discount: Tensor  # [N]                    of what follows them; 0 where the episode was over
    next_obs: dict[str, Tensor]  # [N, *leaf]  what follows: of a truncated episode its own last
    next_mask: Tensor | None  # [N, M] bool    legal actions there

    def to(self, device: torch.device) -> Transitions:
        """The same on a device."""
        return Transitions(
            {name: leaf.to(device) for name, leaf in self.obs.items()},
            self.action.to(device),
            self.reward.to(device),
            self.discount.to(device),
            {name: leaf.to(device) for name, leaf in self.next_obs.items()},
            None if self.next_mask is None else self.next_mask.to(device),
        )

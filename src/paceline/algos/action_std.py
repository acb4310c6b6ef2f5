"""The standard deviation of a Gaussian policy's actions, for the statistic `train/std`."""

from __future__ import annotations

import torch
from torch import nn

from paceline.batch import Trajectory
from paceline.nets.features import policy_input
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.distributions import LOG_STD_MAX, LOG_STD_MIN
from paceline.spec import EnvSpec

ROWS = 64
"""Most observations that the mean is over. A network whose deviation does not depend on them needs only one."""


class ActionStd:
    """Returns the mean standard deviation of the actions, over the first observations of a batch.

    Args:
        policy: The network with the newest weights, on the CPU.
        spec: Names and shapes of the observation leaves.
        obs_norm: Observation normaliser.
    """

    def __init__(self, policy: nn.Module, spec: EnvSpec, obs_norm: ObsNormaliser | None) -> None:
        self._policy, self._spec, self._obs_norm = policy, spec, obs_norm

    @torch.no_grad()
    def __call__(self, batch: Trajectory) -> float:
        """Run the policy on some observations of the batch."""
        obs = {name: leaf[0, :ROWS] for name, leaf in batch.obs.items()}
        params, _ = self._policy(
            policy_input(self._spec, obs if self._obs_norm is None else self._obs_norm.apply_torch(obs))
        )
        log_std = params[:, self._spec.action.param_size // 2 :].clamp(LOG_STD_MIN, LOG_STD_MAX)
        return float(log_std.exp().mean())


def action_std(policy: nn.Module, spec: EnvSpec, obs_norm: ObsNormaliser | None) -> ActionStd | None:
    """Return what computes the statistic; None if actions are not continuous."""
    return ActionStd(policy, spec, obs_norm) if spec.action.kind == "gaussian" else None

"""Advantages and value targets of a batch: GAE for on-policy data, V-trace for data of older weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.batch import Trajectory
from paceline.config.impala_settings import ImpalaConfig
from paceline.nets.features import policy_input
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.distributions import ActionHead
from paceline.ops.returns import gae, next_values
from paceline.ops.scores import score
from paceline.ops.vtrace import vtrace
from paceline.spec import EnvSpec

ROWS = 1024
"""Rows per forward pass over a whole batch: more rows take more memory and are no faster."""


@dataclass(frozen=True, slots=True)
class Target:
    """Targets of a batch; all `[T, B]`."""

    advantage: Tensor
    """Weight of the surrogate's probability ratio."""
    returns: Tensor
    """Targets of the value function."""
    log_prob: Tensor
    """Denominator of the probability ratio: log-probabilities of the old policy."""
    value: Tensor
    """Predictions of the value function."""


class Targets(Protocol):
    """Computes the targets of a batch."""

    def __call__(self, batch: Trajectory, reward: Tensor) -> Target:
        """Compute the targets.

        Args:
            batch: The collected batch.
            reward: `[T, B]`, normalised if reward normalisation is on.
        """


@dataclass(frozen=True, slots=True)
class GAETargets:
    """Generalised advantage estimation, with the values predicted while collecting: for data of the newest weights."""

    gamma: float
    lam: float

    def __call__(self, batch: Trajectory, reward: Tensor) -> Target:
        """See `Targets`."""
        finals, value = batch.finals, batch.value[:-1]
        advantage, returns = gae(
            reward,
            value,
            next_values(batch.value, finals.t, finals.env, finals.value),
            batch.terminated,
            batch.terminated | batch.truncated,
            gamma=self.gamma,
            lam=self.lam,
        )
        return Target(advantage, returns, batch.log_prob, value)


class VTraceTargets:
    """V-trace, with the values that the learner's network predicts now: for data of older weights.

    Args:
        settings: Hyper-parameters of IMPALA or APPO.
        policy: The learner's network with the newest weights, on the CPU.
        head: The action distribution.
        spec: Names and shapes of the observation leaves.
        obs_norm: Observation normaliser.
    """

    def __init__(
        self,
        settings: ImpalaConfig,
        policy: nn.Module,
        head: ActionHead,
        spec: EnvSpec,
        obs_norm: ObsNormaliser | None,
    ) -> None:
        self._settings, self._policy, self._head, self._spec, self._obs_norm = settings, policy, head, spec, obs_norm

    def __call__(self, batch: Trajectory, reward: Tensor) -> Target:
        """See `Targets`."""
        settings, (steps, envs) = self._settings, batch.reward.shape
        params, values = self._predict({name: leaf.flatten(0, 1) for name, leaf in batch.obs.items()})
        log_prob = score(
            self._head,
            params[: steps * envs],
            batch.action.flatten(0, 1).numpy(),
            None if batch.mask is None else batch.mask[:-1].flatten(0, 1).numpy(),
        ).log_prob.reshape(steps, envs)
        value = torch.from_numpy(values.reshape(steps + 1, envs))
        finals = batch.finals
        final_values = torch.from_numpy(self._predict(finals.obs)[1])
        target = vtrace(
            log_prob - batch.log_prob.numpy(),
            reward.numpy(),
            value[:-1].numpy(),
            next_values(value, finals.t, finals.env, final_values).numpy(),
            batch.terminated.numpy(),
            (batch.terminated | batch.truncated).numpy(),
            gamma=settings.gamma,
            lam=settings.vtrace_lambda,
            rho_clip=settings.rho_clip,
            c_clip=settings.c_clip,
        )
        returns = torch.from_numpy(target.vs)
        # APPO: the surrogate's ratio is relative to the behaviour policy and so carries the importance weight.
        # IMPALA: the weight is part of the advantage.
        if settings.proximal:
            return Target(torch.from_numpy(target.advantage), returns, batch.log_prob, value[:-1])
        weighted = torch.from_numpy(target.rho * target.advantage)
        return Target(weighted, returns, torch.from_numpy(log_prob), value[:-1])

    @torch.no_grad()
    def _predict(self, obs: dict[str, Tensor]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Distribution parameters and values of `[N, ...]` observations."""
        count = len(next(iter(obs.values())))
        params = np.empty((count, self._spec.action.param_size), np.float32)
        values = np.empty(count, np.float32)
        for start in range(0, count, ROWS):
            rows = slice(start, start + ROWS)
            part = {name: leaf[rows] for name, leaf in obs.items()}
            seen = part if self._obs_norm is None else self._obs_norm.apply_torch(part)
            outputs, value = self._policy(policy_input(self._spec, seen))
            params[rows], values[rows] = outputs.numpy(), value.numpy()
        return params, values

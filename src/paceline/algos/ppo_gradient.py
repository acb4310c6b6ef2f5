"""The gradient of PPO's loss over rows of the batch, and how it is distributed over workers.

    PPOGradient        one policy, N rows -> one flat gradient
    ├── ShardedGradient    in a worker (or inline): shards of a minibatch, written to shared memory
    └── DeviceGradients    in the driver: whole minibatches on a GPU (algos/device_gradients.py)

A shard has the same bits whichever process computes it, so the weights do not depend on the worker count.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.algos.torch_threads import torch_threads
from paceline.config.algorithm_settings import SurrogateSettings
from paceline.memory.gather import Gather
from paceline.memory.shards import Shards
from paceline.memory.slots import Slots
from paceline.nets.array_net import Obs, TorchNet, array_net_for
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.distributions import ActionHead
from paceline.ops.scores import score
from paceline.ops.surrogate import surrogate
from paceline.spec import EnvSpec


class PPOGradient:
    """Forward, loss and backward over rows of the batch; writes the gradient to `vector`.

    Args:
        policy: The policy. Its parameters must already be in their final memory.
        head: The action distribution.
        spec: Names and shapes of the observation leaves.
        config: Hyper-parameters.
        obs_norm: Observation normaliser.
    """

    def __init__(
        self,
        policy: nn.Module,
        head: ActionHead,
        spec: EnvSpec,
        config: SurrogateSettings,
        obs_norm: ObsNormaliser | None,
    ) -> None:
        self._head, self._config = head, config
        self.obs_norm = obs_norm
        """Callers normalise observations with it before calling."""
        self._net = array_net_for(policy, spec, threads=config.learner_threads)
        by_torch = isinstance(self._net, TorchNet)
        self._threads: Callable[[], AbstractContextManager[None]] = (
            partial(torch_threads, config.learner_threads) if by_torch else nullcontext
        )
        self.vector = self._net.gradient  # [P]

    def __call__(
        self,
        obs: Obs,
        action: NDArray[Any],
        mask: NDArray[np.bool_] | None,
        samples: NDArray[np.float32],
        *,
        mean: float,
        inv_std: float,
        total: int,
        clip_range: float,
    ) -> tuple[float, ...]:
        """Compute the gradient of N rows.

        Args:
            obs: N normalised observations; arrays, or tensors on the policy's device.
            action: [N, *act] the actions taken.
            mask: [N, M] the legal actions.
            samples: [N, 4] in the order of `shards.SAMPLE`.
            mean: Mean of the advantages over the whole minibatch.
            inv_std: Inverse of their standard deviation.
            total: Rows of the whole minibatch.
            clip_range: Clip range of the probability ratio.

        Returns:
            The loss terms, divided by `total`: the terms of all shards add up to those of the minibatch.
        """
        cfg = self._config
        old_log_prob, advantage, returns, old_value = samples.T
        # No numpy warnings: a NaN or infinity reaches the gradient norm, and `BadUpdates` handles it there.
        with self._threads(), np.errstate(over="ignore", invalid="ignore"):
            params, value = self._net(obs, learns=True)
            scored = score(self._head, params, action, mask)
            loss = surrogate(
                scored.log_prob,
                scored.entropy,
                value,
                old_log_prob=old_log_prob,
                advantage=(advantage - np.float32(mean)) * np.float32(inv_std),
                returns=returns,
                old_value=old_value,
                total=total,
                clip_range=clip_range,
                clip_range_vf=cfg.clip_range_vf,
                ent_coef=cfg.ent_coef,
                vf_coef=cfg.vf_coef,
            )
            self._net.pullback(scored.pullback(loss.d_log_prob, loss.d_entropy), loss.d_value)
        return loss.terms


class ShardedGradient:
    """The worker's side: computes shards of a minibatch from the slots, each into its own row of shared memory.

    Args:
        gradient: The gradient of the worker's policy, whose parameters are views of the published weights.
        slots: The batch.
        shards: The prepared samples and the rows for the gradients.
    """

    def __init__(self, gradient: PPOGradient, slots: Slots, shards: Shards) -> None:
        self._gradient, self._shards = gradient, shards
        rows = slots.samples()
        arrays = {"action": rows.action, "samples": shards.samples}
        if rows.mask is not None:
            arrays["mask"] = rows.mask
        self._gather = Gather({name: leaf.numpy() for name, leaf in arrays.items()})
        self._gather_obs = Gather({name: leaf.numpy() for name, leaf in rows.obs.items()})
        self._order, self._vector = shards.order.numpy(), gradient.vector.numpy()
        self._grads, self._terms = shards.grads.numpy(), shards.terms.numpy()
        self._busy_s = 0.0

    def __call__(self, shard: int) -> None:
        """Compute one shard of the minibatch that the driver has set."""
        began = perf_counter()
        self._compute(shard)
        self._busy_s += perf_counter() - began

    def all(self, count: int) -> None:
        """Compute shards 0 to `count - 1` in this process: for a learner without workers."""
        for shard in range(count):
            self(shard)

    def busy_s(self) -> float:
        """Seconds spent computing since the last call of this method."""
        busy_s, self._busy_s = self._busy_s, 0.0
        return busy_s

    def _compute(self, shard: int) -> None:
        start, stop, mean, inv_std = self._shards.minibatch
        index = self._order[slice(*self._shards.bounds(start, stop)[shard])]
        if not len(index):  # the last minibatch may have fewer rows than there are shards
            self._terms[shard] = self._grads[shard] = 0.0
            return
        obs, rest, norm = self._gather_obs(index), self._gather(index), self._gradient.obs_norm
        if norm is not None:
            obs = norm.apply(obs)
        self._terms[shard] = self._gradient(
            obs,
            rest["action"],
            rest.get("mask"),
            rest["samples"],
            mean=mean,
            inv_std=inv_std,
            total=stop - start,
            clip_range=self._shards.clip_range,
        )
        self._grads[shard] = self._vector


class Gradients(Protocol):
    """Computes the gradients for the learner."""

    def begin(self, clip_range: float) -> None:
        """Called once per batch, when its samples are in shared memory, with its clip range."""

    def __call__(self, start: int, stop: int, mean: float, inv_std: float) -> tuple[Tensor, NDArray[np.float32]]:
        """Gradient `[P]` and loss terms of the minibatch `order[start:stop]`."""


class ShardedUpdate:
    """Distributes the shards of a minibatch over the workers and sums the results, in shard order so that bits match.

    Args:
        work: `Runtime.work`: runs that many shards on the workers.
        shards: Where workers write gradients and loss terms.
        copy_weights: Copies the learner's weights to the memory that workers read; None if the learner updates that
            memory.
    """

    def __init__(
        self, work: Callable[[int], None], shards: Shards, copy_weights: Callable[[], object] | None = None
    ) -> None:
        self._work, self._shards, self._copy_weights = work, shards, copy_weights
        self._grads, self._terms = shards.grads.numpy(), shards.terms.numpy()
        self._sum = torch.zeros_like(shards.grads[0])

    def begin(self, clip_range: float) -> None:
        """Share the clip range. Workers read the batch in shared memory."""
        self._shards.clip_range = clip_range

    def __call__(self, start: int, stop: int, mean: float, inv_std: float) -> tuple[Tensor, NDArray[np.float32]]:
        """Compute the gradient of minibatch `order[start:stop]`. Blocks until all shards are done."""
        if self._copy_weights is not None:
            self._copy_weights()
        self._shards.minibatch = start, stop, mean, inv_std
        self._work(len(self._grads))
        np.add.reduce(self._grads, 0, out=self._sum.numpy())
        return self._sum, np.add.reduce(self._terms, 0)

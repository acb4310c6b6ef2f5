"""The gradient of PPO's loss over some rows of the batch, and who computes it.

    PPOGradient        one policy, some rows -> one flat gradient
    ├── ShardedGradient    inside a worker (or inline): its shards of a minibatch, into shared memory
    └── DeviceGradient     in the driver: whole minibatches on a GPU

A shard is computed in the same way wherever it is computed, so the weights do not depend on the worker count.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from paceline.algos.settings import Settings
from paceline.algos.torch_threads import torch_threads
from paceline.memory.shards import Shards
from paceline.memory.slots import Samples, Slots
from paceline.nets.array_net import array_net_for
from paceline.nets.compiled import CompiledForward
from paceline.nets.normalise import ObsNormaliser
from paceline.nets.policy import Forward
from paceline.ops.distributions import ActionHead
from paceline.ops.scores import score
from paceline.ops.surrogate import surrogate
from paceline.spec import EnvSpec


class PPOGradient:
    """Forward, loss and backward over rows of the batch; the gradient is left in `vector`.

    Args:
        policy: Its parameters lie where they will stay.
        head: The action distribution.
        spec: What the env's observations are made of.
        config: Hyper-parameters.
        obs_norm: Normaliser of observations.
        compiled_rows: Rows of the largest batch, where its network is to be compiled.
    """

    def __init__(
        self,
        policy: nn.Module,
        head: ActionHead,
        spec: EnvSpec,
        config: Settings,
        obs_norm: ObsNormaliser | None,
        *,
        compiled_rows: int | None = None,
    ) -> None:
        self._head, self._config, self._obs_norm = head, config, obs_norm
        forward: Forward | None = None
        if compiled_rows:
            with torch_threads(config.learner_threads):  # code is made for a number of threads
                forward = CompiledForward(policy, spec, compiled_rows)
        self._net = array_net_for(policy, spec, threads=config.learner_threads, forward=forward)
        self.vector = self._net.gradient  # [P]

    def __call__(
        self, rows: Samples, scalars: Tensor, index: Tensor, *, mean: float, inv_std: float, total: int
    ) -> tuple[float, ...]:
        """Returns the terms of the loss, as shares of the whole minibatch's.

        Args:
            rows: The batch, by row, on the policy's device.
            scalars: `[N, 4]` on the CPU, in the order of `shards.SAMPLE`.
            index: Rows to take, on the CPU. The gather is the one copy between a slot and the network.
            mean: Of the advantages of the whole minibatch.
            inv_std: One over their deviation.
            total: Rows of the whole minibatch.
        """
        cfg, device = self._config, self.vector.device
        there = index.to(device)
        obs = {name: leaf[there] for name, leaf in rows.obs.items()}
        if self._obs_norm is not None:
            obs = self._obs_norm.apply_torch(obs)
        old_log_prob, advantage, returns, old_value = scalars[index].numpy().T
        # Whatever is not finite shows in the gradient's length, and is dealt with there.
        with torch_threads(cfg.learner_threads), np.errstate(over="ignore", invalid="ignore"):
            params, value = self._net(obs, learns=True)
            scored = score(
                self._head,
                params,
                rows.action[there].cpu().numpy(),
                None if rows.mask is None else rows.mask[there].cpu().numpy(),
            )
            loss = surrogate(
                scored.log_prob,
                scored.entropy,
                value,
                old_log_prob=old_log_prob,
                advantage=(advantage - np.float32(mean)) * np.float32(inv_std),
                returns=returns,
                old_value=old_value,
                total=total,
                clip_range=cfg.clip_range,
                clip_range_vf=cfg.clip_range_vf,
                ent_coef=cfg.ent_coef,
                vf_coef=cfg.vf_coef,
            )
            self._net.pullback(scored.pullback(loss.d_log_prob, loss.d_entropy), loss.d_value)
        return loss.terms


class ShardedGradient:
    """A worker's part: shards of a minibatch, from the slots into each shard's own row.

    Args:
        gradient: Of the worker's own copy of the policy, bound to the published weights.
        slots: The batch.
        shards: The prepared samples, and where gradients go.
    """

    def __init__(self, gradient: PPOGradient, slots: Slots, shards: Shards) -> None:
        self._gradient, self._rows, self._shards = gradient, slots.samples(), shards
        self._busy_s = 0.0

    def __call__(self, shard: int) -> None:
        """Compute one shard of the minibatch that the driver has set."""
        began = perf_counter()
        self._compute(shard)
        self._busy_s += perf_counter() - began

    def all(self, count: int) -> None:
        """Compute so many, one after another: for whoever learns alone."""
        for shard in range(count):
            self(shard)

    def busy_s(self) -> float:
        """Seconds spent computing since this was last asked."""
        busy_s, self._busy_s = self._busy_s, 0.0
        return busy_s

    def _compute(self, shard: int) -> None:
        shards = self._shards
        start, stop, mean, inv_std = shards.minibatch
        index = shards.order[slice(*shards.bounds(start, stop)[shard])]
        if not len(index):  # the last minibatch may have fewer rows than there are shards
            shards.terms[shard].zero_()
            shards.grads[shard].zero_()
            return
        terms = self._gradient(self._rows, shards.samples, index, mean=mean, inv_std=inv_std, total=stop - start)
        shards.terms[shard] = torch.tensor(terms)
        shards.grads[shard] = self._gradient.vector


class Gradients(Protocol):
    """Where the learner gets its gradients from."""

    def begin(self) -> None:
        """A new batch is prepared."""

    def __call__(self, start: int, stop: int, mean: float, inv_std: float) -> tuple[Tensor, Tensor]:
        """Gradient `[P]` and loss terms of the minibatch `order[start:stop]`."""


class WorkersGradients:
    """Has the workers compute shards, and adds them up in the order of shards.

    Args:
        work: `Runtime.work`.
        shards: Where the results appear.
    """

    def __init__(self, work: Callable[[int], None], shards: Shards) -> None:
        self._work, self._shards = work, shards
        self._sum = torch.zeros_like(shards.grads[0])

    def begin(self) -> None:
        """Nothing to do: workers read the batch where it is."""

    def __call__(self, start: int, stop: int, mean: float, inv_std: float) -> tuple[Tensor, Tensor]:
        """Blocks until all shards are there."""
        self._shards.minibatch = start, stop, mean, inv_std
        self._work(len(self._shards.grads))
        return torch.sum(self._shards.grads, 0, out=self._sum), self._shards.terms.sum(0)


class DeviceGradients:
    """Computes whole minibatches on the learner's device, from a copy of the batch.

    Args:
        gradient: Of the policy on the device.
        slots: The batch.
        shards: The prepared samples.
        device: Where to.
    """

    def __init__(self, gradient: PPOGradient, slots: Slots, shards: Shards, device: torch.device) -> None:
        self._gradient, self._shards, self._device = gradient, shards, device
        self._views = slots.samples()
        self.begin()

    def begin(self) -> None:
        """Copy the batch over, once for all epochs."""
        self._rows = self._views.to(self._device)

    def __call__(self, start: int, stop: int, mean: float, inv_std: float) -> tuple[Tensor, Tensor]:
        """One forward and backward on the device; the loss in between is a few numbers per row, and the CPU's."""
        index = self._shards.order[start:stop]
        terms = self._gradient(self._rows, self._shards.samples, index, mean=mean, inv_std=inv_std, total=stop - start)
        return self._gradient.vector, torch.tensor(terms)

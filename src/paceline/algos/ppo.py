"""Proximal policy optimisation (Schulman et al. 2017): the learner.

Trajectory -> advantages -> n_epochs x minibatches -> loss -> flat gradient -> clip -> fused Adam -> publish
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.algos.settings import PPOConfig
from paceline.batch import Trajectory
from paceline.errors import LearnerError
from paceline.measure.clock import Clock
from paceline.memory.weights import Weights
from paceline.nets.features import policy_input
from paceline.nets.flat import FlatParameters
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops import losses
from paceline.ops.adam import FlatAdam
from paceline.ops.distributions import ActionHead
from paceline.ops.returns import gae, next_values
from paceline.spec import EnvSpec

MAX_BAD_UPDATES = 10
"""Non-finite gradients in a row after which training stops."""


@dataclass(frozen=True, slots=True)
class Minibatch:
    """N steps in random order, gathered from the batch."""

    obs: dict[str, Tensor]  # [N, *leaf]  normalised
    mask: Tensor | None  # [N, M]
    action: Tensor  # [N, *act]
    log_prob: Tensor  # [N]  under the acting policy
    advantage: Tensor  # [N]
    returns: Tensor  # [N]
    value: Tensor  # [N]  under the acting policy


class PPOLearner:
    """Turns batches into new weights. Lives in the driver."""

    def __init__(
        self,
        policy: nn.Module,
        head: ActionHead,
        weights: Weights,
        config: PPOConfig,
        *,
        spec: EnvSpec,
        seed: int,
        device: torch.device,
        clock: Clock,
        obs_norm: ObsNormaliser | None = None,
        reward_norm: RewardNormaliser | None = None,
    ) -> None:
        """Move the policy into the published vector.

        Args:
            policy: The network; its parameters become views of the published vector.
            head: The action distribution.
            weights: Where new weights are published.
            config: Hyper-parameters.
            spec: What the env's observations are made of.
            seed: Of the minibatch order.
            device: Where learning happens.
            clock: Books the time as `learn` and `sync`.
            obs_norm: Normaliser of observations; frozen here, moved on after each update.
            reward_norm: Normaliser of rewards, likewise.
        """
        self._policy, self._head, self._config = policy, head, config
        self._weights, self._device, self._spec, self._seed, self._clock = weights, device, spec, seed, clock
        self._obs_norm, self._reward_norm = obs_norm, reward_norm
        on_cpu = device.type == "cpu"
        storage = weights.vector if on_cpu else torch.empty_like(weights.vector, device=device)
        self._flat = FlatParameters(policy.to(device), storage)
        if not on_cpu:
            weights.vector.copy_(self._flat.vector.detach())
        self._adam = FlatAdam(self._flat.vector.detach())
        self.n_updates = 0
        self.bad_updates = 0
        self._bad_in_a_row = 0

    @property
    def version(self) -> int:
        """The version of the weights that the next batch should be collected with."""
        return self._weights.version

    def update(self, batch: Trajectory, progress: float) -> dict[str, float]:
        """Learn from one batch and publish the result.

        Args:
            batch: What the newest weights collected.
            progress: Share of the budget that is spent, for schedules.

        Returns:
            Statistics by the names of the `train/` tags.
        """
        with self._clock.phase("learn"), _torch_threads(self._config.learner_threads):
            stats = self._learn(batch, progress)
        with self._clock.phase("sync"):
            self._weights.publish(self._flat.vector.detach())
        return stats

    def _learn(self, batch: Trajectory, progress: float) -> dict[str, float]:
        cfg = self._config
        lr = cfg.learning_rate * (1.0 - progress if cfg.lr_schedule == "linear" else 1.0)
        samples = self._samples(batch)
        terms: list[Tensor] = []
        for epoch in range(cfg.n_epochs):
            terms += [self._step(samples.take(index), lr) for index in self._minibatch_indices(batch, epoch)]
            if cfg.target_kl is not None and float(terms[-1][_KL]) > 1.5 * cfg.target_kl:
                break
        self._move_normalisers(batch)
        stats = dict(zip(_STATS, torch.stack(terms).mean(0).tolist(), strict=True))
        seen = batch.valid.flatten()
        stats["explained_variance"] = losses.explained_variance(samples.value[seen], samples.returns[seen])
        stats["learning_rate"] = lr
        stats["n_updates"] = float(self.n_updates)
        return stats

    def _samples(self, batch: Trajectory) -> _Samples:
        """The batch as rows of single steps, with advantages. Observations stay views."""
        cfg, device = self._config, self._device
        reward = batch.reward
        if self._reward_norm is not None:
            reward = self._reward_norm.apply(reward)
        finals, value = batch.finals, batch.value[:-1]
        advantage, returns = gae(
            reward,
            value,
            next_values(batch.value, finals.t, finals.env, finals.value),
            batch.terminated,
            batch.terminated | batch.truncated,
            gamma=cfg.gamma,
            lam=cfg.gae_lambda,
        )
        scalars = torch.stack([batch.log_prob, advantage, returns, value], -1).flatten(0, 1)
        steps = len(batch.reward)
        return _Samples(
            obs={name: leaf[:steps].flatten(0, 1).to(device) for name, leaf in batch.obs.items()},
            mask=None if batch.mask is None else batch.mask[:steps].flatten(0, 1).to(device),
            action=batch.action.flatten(0, 1).to(device),
            scalars=scalars.to(device),
        )

    def _minibatch_indices(self, batch: Trajectory, epoch: int) -> Iterator[Tensor]:
        """Random minibatches of the valid steps; the order depends on seed, version and epoch alone."""
        stream = np.random.Generator(
            np.random.Philox(key=[self._seed, _MINIBATCHES], counter=[0, 0, epoch, batch.version])
        )
        valid = batch.valid.numpy().reshape(-1)
        index = np.arange(len(valid)) if valid.all() else np.flatnonzero(valid)
        pieces = -(-len(index) // (self._config.batch_size or len(index)))
        for piece in np.array_split(stream.permutation(index), pieces):
            yield torch.from_numpy(piece).to(self._device)

    def _step(self, minibatch: Minibatch, lr: float) -> Tensor:
        """One optimiser step; returns the statistics in the order of `_STATS`."""
        loss, terms = self._loss(minibatch)
        self._flat.flat_grad.zero_()
        loss.backward()
        norm = torch.linalg.vector_norm(self._flat.flat_grad)
        if not torch.isfinite(norm):
            return self._skip(terms)
        self._bad_in_a_row = 0
        limit = self._config.max_grad_norm
        if limit > 0:
            self._flat.flat_grad.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
        self._adam.step(self._flat.flat_grad, lr)
        self.n_updates += 1
        return terms

    def _loss(self, mb: Minibatch) -> tuple[Tensor, Tensor]:
        cfg = self._config
        obs = mb.obs if self._obs_norm is None else self._obs_norm.apply_torch(mb.obs)
        params, value = self._policy(policy_input(self._spec, obs))
        log_prob, entropy = self._head.log_prob_entropy(params, mb.action, mb.mask)
        advantage = losses.standardise(mb.advantage) if cfg.normalize_advantage else mb.advantage
        policy_loss, log_ratio = losses.clipped_policy_loss(log_prob, mb.log_prob, advantage, cfg.clip_range)
        value_loss = losses.value_loss(value, mb.returns, mb.value, cfg.clip_range_vf)
        entropy_loss = -entropy.mean()
        loss = policy_loss + cfg.ent_coef * entropy_loss + cfg.vf_coef * value_loss
        with torch.no_grad():
            kl = losses.approx_kl(log_ratio)
            clipped = losses.clip_fraction(log_ratio, cfg.clip_range)
            terms = torch.stack([loss, policy_loss, value_loss, entropy_loss, kl, clipped])
        return loss, terms

    def _skip(self, terms: Tensor) -> Tensor:
        """Leave the weights alone after a non-finite gradient, but not for ever."""
        self.bad_updates += 1
        self._bad_in_a_row += 1
        if self._bad_in_a_row >= MAX_BAD_UPDATES:
            raise LearnerError(
                f"update {self.n_updates}: the gradient was not finite {self._bad_in_a_row} times in a row. "
                "Lower --learning-rate, set --max-grad-norm, or look for NaN in observations and rewards."
            )
        return torch.nan_to_num(terms)

    def _move_normalisers(self, batch: Trajectory) -> None:
        valid = batch.valid.numpy()
        rows = None if valid.all() else valid
        if self._obs_norm is not None:
            self._obs_norm.update({name: leaf[:-1].numpy() for name, leaf in batch.obs.items()}, rows)
        if self._reward_norm is not None:
            self._reward_norm.update(batch.reward.numpy(), (batch.terminated | batch.truncated).numpy(), rows)

    def state(self) -> dict[str, NDArray[Any]]:
        """What a bit-exact resume needs, besides the normalisers."""
        return {
            "weights": self._weights.vector.numpy(),
            "version": np.array(self._weights.version),
            "n_updates": np.array(self.n_updates),
            "bad_updates": np.array([self.bad_updates, self._bad_in_a_row]),
            **{f"adam/{key}": value for key, value in self._adam.state().items()},
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`."""
        self.load_weights(state["weights"])
        self._weights.version = int(state["version"])
        self.n_updates = int(state["n_updates"])
        self.bad_updates, self._bad_in_a_row = (int(n) for n in state["bad_updates"])
        prefix = "adam/"
        self._adam.load({key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)})

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Take over weights alone: a warm start."""
        vector = torch.from_numpy(weights)
        self._flat.vector.detach().copy_(vector)
        self._weights.vector.copy_(vector)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """Learn with `count` threads; acting in this process keeps to the one it has everywhere."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


_STATS = (
    "loss",
    "policy_gradient_loss",
    "value_loss",
    "entropy_loss",
    "approx_kl",
    "clip_fraction",
)
_KL = _STATS.index("approx_kl")
_MINIBATCHES = 0x3B47C4
"""Keeps the stream of minibatch orders apart from every other use of the seed."""


@dataclass(frozen=True, slots=True)
class _Samples:
    """The whole batch as rows of single steps."""

    obs: dict[str, Tensor]  # [N, *leaf]
    mask: Tensor | None  # [N, M]
    action: Tensor  # [N, *act]
    scalars: Tensor  # [N, 4]  log_prob, advantage, returns, value: one gather instead of four

    @property
    def returns(self) -> Tensor:
        return self.scalars[:, 2]

    @property
    def value(self) -> Tensor:
        return self.scalars[:, 3]

    def take(self, index: Tensor) -> Minibatch:
        """The minibatch of these rows: the one copy between a slot and the network."""
        log_prob, advantage, returns, value = self.scalars[index].unbind(-1)
        return Minibatch(
            obs={name: leaf[index] for name, leaf in self.obs.items()},
            mask=None if self.mask is None else self.mask[index],
            action=self.action[index],
            log_prob=log_prob,
            advantage=advantage,
            returns=returns,
            value=value,
        )

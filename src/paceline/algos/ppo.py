"""Proximal policy optimisation (Schulman et al. 2017): the learner.

    Trajectory -> advantages -> n_epochs x minibatches -> flat gradient -> clip -> Adam -> publish

The learner computes targets, shuffles minibatches and applies updates; workers usually compute the gradients
(`ppo_gradient`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.algos.action_std import ActionStd
from paceline.algos.bad_updates import BadUpdates
from paceline.algos.ppo_gradient import Gradients
from paceline.algos.targets import Targets
from paceline.batch import Trajectory
from paceline.config.algorithm_settings import SurrogateSettings
from paceline.measure.clock import Clock
from paceline.memory.parts import part, under
from paceline.memory.shards import Shards
from paceline.nets.normalise import ObsNormaliser, RewardNormaliser
from paceline.ops.clip import clip_norm
from paceline.ops.minibatch_moments import minibatch_moments
from paceline.ops.optimiser import Optimiser
from paceline.ops.returns import explained_variance
from paceline.ops.schedules import value_at
from paceline.ops.surrogate import TERMS

Floats = NDArray[np.float32]

_KL = TERMS.index("approx_kl")
_MINIBATCHES = 0x3B47C4
"""Stream tag: separates the minibatch order from every other use of the seed."""


class PublishedWeights(Protocol):
    """Where the learner publishes its weights."""

    vector: Tensor
    version: int

    def publish(self, flat: Tensor) -> int:
        """Make `flat` [P] the newest weights; returns their version."""


class PPOLearner:
    """Turns batches into new weights. Runs in the driver; in A3C, each worker has one."""

    def __init__(
        self,
        vector: Tensor,
        weights: PublishedWeights,
        gradients: Gradients,
        shards: Shards,
        targets: Targets,
        optimiser: Optimiser,
        config: SurrogateSettings,
        *,
        seed: int,
        clock: Clock,
        obs_norm: ObsNormaliser | None = None,
        reward_norm: RewardNormaliser | None = None,
        action_std: ActionStd | None = None,
    ) -> None:
        """Start from the weights in `vector`.

        Args:
            vector: [P] the parameters being learned; on the CPU without workers, the published vector itself.
            weights: Where new weights are published.
            gradients: Computes the gradients.
            shards: Receives the prepared samples.
            targets: Computes advantages and returns.
            optimiser: Updates `vector`.
            config: Hyper-parameters.
            seed: Seed of the minibatch order.
            clock: Records the time as `learn` and `sync`.
            obs_norm: Observation normaliser; constant during a batch, updated after it.
            reward_norm: Reward normaliser, likewise.
            action_std: Computes the statistic `std`; None for none.
        """
        self._vector, self._weights, self._gradients, self._shards = vector, weights, gradients, shards
        self._targets = targets
        self._config, self._seed, self._clock = config, seed, clock
        self._lr = value_at("learning_rate", config.learning_rate, config.lr_schedule)
        self._clip_range = value_at("clip_range", config.clip_range, config.clip_schedule)
        self._obs_norm, self._reward_norm = obs_norm, reward_norm
        self._optimiser, self._action_std = optimiser, action_std
        self.lag = 0
        """Learner version minus the version that collected the last batch, when learning from it began."""
        self.n_updates = 0
        self.bad = BadUpdates(config.n_epochs)

    @property
    def version(self) -> int:
        """The version of the weights that should collect the next batch."""
        return self._weights.version

    def update(self, batch: Trajectory, progress: float) -> dict[str, float]:
        """Learn from one batch and publish the new weights.

        Args:
            batch: The steps to learn from. Synchronous PPO collects them with the newest weights, a pipeline with those
                before, asynchronous algorithms with older ones.
            progress: Fraction of the budget spent, for schedules.

        Returns:
            Statistics by the names of the `train/` tags.
        """
        self.lag = self.version - batch.version
        # No numpy warnings: a NaN or infinity reaches the gradient norm, and `BadUpdates` handles it there.
        with self._clock.phase("learn"), np.errstate(over="ignore", invalid="ignore"):
            stats = self._learn(batch, progress)
        with self._clock.phase("sync"):
            self._weights.publish(self._vector)
            if self._action_std is not None:
                stats["std"] = self._action_std(batch)
        return stats

    def _learn(self, batch: Trajectory, progress: float) -> dict[str, float]:
        cfg = self._config
        lr, clip_range = self._lr(progress), self._clip_range(progress)
        advantage, returns = self._prepare(batch, clip_range)
        rows = np.flatnonzero(batch.valid.numpy())
        pieces = -(-len(rows) // (cfg.batch_size or len(rows) or 1))  # 0 if no row is valid: every env only reset
        cuts = [len(rows) * piece // max(1, pieces) for piece in range(pieces + 1)]
        # One array for all minibatches: small arrays kept between the large temporary ones would fragment the heap.
        terms, done = np.zeros((max(1, cfg.n_epochs * pieces), len(TERMS)), np.float32), 0
        # The minibatch order depends on seed and version only.
        counter = [0, 0, 0, self.version]
        shuffle = np.random.Generator(np.random.Philox(key=[self._seed, _MINIBATCHES], counter=counter))
        order = self._shards.order[: len(rows)].numpy()
        for _ in range(cfg.n_epochs):
            order[:] = shuffle.permutation(rows)
            scales: Iterable[tuple[float, float]] = itertools.repeat((0.0, 1.0))
            if cfg.normalize_advantage:
                scales = minibatch_moments(advantage[order], cuts)
            for (start, stop), scale in zip(itertools.pairwise(cuts), scales, strict=False):
                terms[done] = self._step(start, stop, *scale, lr)
                done += 1
            if cfg.target_kl is not None and float(terms[done - 1, _KL]) > 1.5 * cfg.target_kl:
                break
        self._update_normalisers(batch)
        stats = self._stats(terms[: max(1, done)], batch.value[:-1].numpy().reshape(-1)[rows], returns[rows])
        if math.isfinite(clip_range):
            stats["clip_range"] = clip_range
        return {**stats, "learning_rate": lr, "n_updates": float(self.n_updates)}

    def _prepare(self, batch: Trajectory, clip_range: float) -> tuple[Floats, Floats]:
        """Compute advantages and returns, [T * B] each, and write the samples to shared memory for the gradients."""
        reward = batch.reward if self._reward_norm is None else self._reward_norm.apply(batch.reward)
        target = self._targets(batch, reward)
        columns = (target.log_prob, target.advantage, target.returns, target.value)
        arrays = [column.numpy().reshape(-1) for column in columns]
        for place, array in zip(self._shards.samples.numpy().T, arrays, strict=True):
            place[...] = array
        self._gradients.begin(clip_range)
        _, advantage, returns, _ = arrays
        return advantage, returns

    def _step(self, start: int, stop: int, mean: float, inv_std: float, lr: float) -> Floats:
        """One optimiser step, skipped if the gradient is not finite; returns the loss terms."""
        grad, terms = self._gradients(start, stop, mean, inv_std)
        if self.bad.is_bad(clip_norm(grad, self._config.max_grad_norm), self.n_updates):
            return np.nan_to_num(terms)
        self._optimiser.step(grad, lr)
        self.n_updates += 1
        return terms

    def _stats(self, terms: Floats, value: Floats, returns: Floats) -> dict[str, float]:
        cfg = self._config
        stats = dict(zip(TERMS, terms.mean(0).tolist(), strict=True))
        loss = stats["policy_gradient_loss"] + cfg.ent_coef * stats["entropy_loss"] + cfg.vf_coef * stats["value_loss"]
        return {"loss": loss, **stats, "explained_variance": explained_variance(value, returns)}

    def _update_normalisers(self, batch: Trajectory) -> None:
        valid = batch.valid.numpy()
        rows = None if valid.all() else valid
        if self._obs_norm is not None:
            self._obs_norm.update({name: leaf[:-1].numpy() for name, leaf in batch.obs.items()}, rows)
        if self._reward_norm is not None:
            self._reward_norm.update(batch.reward.numpy(), (batch.terminated | batch.truncated).numpy(), rows)

    def state(self) -> dict[str, NDArray[Any]]:
        """State for a bit-exact resume, without the normalisers."""
        return {
            "weights": self._weights.vector.numpy(),
            "version": np.array(self._weights.version),
            "n_updates": np.array(self.n_updates),
            "bad_updates": self.bad.state(),
            **under("optimiser/", self._optimiser.state()),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`."""
        self.load_weights(state["weights"])
        self._weights.version = int(state["version"])
        self.n_updates = int(state["n_updates"])
        self.bad.load(state["bad_updates"])
        self._optimiser.load(part(state, "optimiser/"))

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Load the weights only: a warm start."""
        vector = torch.from_numpy(weights)
        self._vector.copy_(vector)
        self._weights.vector.copy_(vector)

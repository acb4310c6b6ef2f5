"""Deep Q-learning (Mnih et al. 2015): the learner.

    replay -> items -> transitions -> targets -> flat gradient -> clip -> Adam        n updates per batch
       ^------------------ TD errors (prioritised replay) ----------------+

The network can be any policy: its outputs are advantages and a state value, i.e. a dueling network. The loss has one
derivative per transition, which is written by hand; only the network itself needs a backward pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.algos.bad_updates import BadUpdates
from paceline.algos.torch_threads import torch_threads
from paceline.batch import Transitions
from paceline.config.dqn_settings import DQNConfig
from paceline.measure.clock import Clock
from paceline.memory.parts import part, under
from paceline.memory.replay import Replay
from paceline.memory.sampling import Sampler
from paceline.memory.weights import Weights
from paceline.nets.array_net import ArrayNet
from paceline.ops.adam import FlatAdam
from paceline.ops.clip import clip_norm
from paceline.ops.q_learning import bootstrap_targets, loss_and_slope, q_pullback, q_values
from paceline.ops.schedules import value_at

STATS = ("mean_q", "td_error", "epsilon", "buffer_size", "samples_per_insert")
"""Statistics of DQN, besides those of all learners."""
_ITEMS = 0x17E35
"""Stream tag: separates the sampling of replay items from every other use of the seed."""


class DQNLearner:
    """Learns from the replay buffer; the caller sets the number of updates. Runs in the driver."""

    def __init__(
        self,
        net: ArrayNet,
        target: ArrayNet,
        vectors: tuple[Tensor, Tensor],
        weights: Weights,
        replay: Replay,
        sampler: Sampler,
        epsilon: Epsilon,
        config: DQNConfig,
        *,
        seed: int,
        clock: Clock,
    ) -> None:
        """Start from the weights in the first of `vectors`.

        Args:
            net: The online network; its parameters are views of the first vector.
            target: The target network; its parameters are views of the second vector.
            vectors: Parameters of the online network (on the CPU the published vector itself) and the target network.
            weights: Where new weights are published.
            replay: The replay buffer.
            sampler: Samples items from it.
            epsilon: The exploration schedule; advanced after every batch.
            config: Hyper-parameters.
            seed: Seed of the sampling.
            clock: Records the time as `learn` and `sync`.
        """
        self._net, self._target, self._weights = net, target, weights
        self._vector, self._target_vector = vectors
        self._target_vector.copy_(self._vector)
        self._replay, self._sampler, self._epsilon = replay, sampler, epsilon
        self._rows = np.arange(config.batch_size)
        self._config, self._seed, self._clock = config, seed, clock
        self._lr = value_at("learning_rate", config.learning_rate, config.lr_schedule)
        self._optimiser = FlatAdam(self._vector, eps=1e-8)
        self.lag = 0
        """Always 0: DQN is off-policy and needs no correction for old data."""
        self._progress = 0.0
        self.n_updates = 0
        self.bad = BadUpdates()
        self.samples = 0
        """Transitions sampled so far, counted with repetition."""

    @property
    def version(self) -> int:
        """The version of the weights that should collect the next batch."""
        return self._weights.version

    def update(self, updates: int, progress: float) -> dict[str, float]:
        """Do `updates` optimiser steps, publish the weights and advance the schedules.

        Args:
            updates: Number of optimiser steps; the collector computes it from the steps collected.
            progress: Fraction of the budget spent, for schedules.

        Returns:
            Statistics by the names of the `train/` tags.
        """
        self._progress = progress
        stats = self.optimise(updates)
        self._epsilon.advance(progress)
        return stats

    def optimise(self, updates: int) -> dict[str, float]:
        """Do `updates` optimiser steps on stored data only; schedules do not advance."""
        config, progress = self._config, self._progress
        lr = self._lr(progress)
        stats = {"learning_rate": lr}
        # No numpy warnings: a NaN or infinity reaches the gradient norm, and `BadUpdates` handles it there.
        quiet = np.errstate(over="ignore", invalid="ignore")
        with self._clock.phase("learn"), torch_threads(config.learner_threads), quiet:
            stream = np.random.Generator(np.random.Philox(key=[self._seed, _ITEMS], counter=[0, 0, 0, self.version]))
            beta = config.priority_beta + (1.0 - config.priority_beta) * progress
            terms = [self._step(stream, beta, lr) for _ in range(updates)]
            if updates:
                stats |= zip(("loss", "mean_q", "td_error"), np.mean(terms, axis=0).tolist(), strict=True)
        with self._clock.phase("sync"):
            stats |= {"epsilon": self._epsilon.value, "n_updates": float(self.n_updates)}
            stats["buffer_size"] = float(self._replay.stored)
            if inserted := int(self._replay.head.sum()) * self._replay.shape.group_size:
                stats["samples_per_insert"] = self.samples / inserted
            self._weights.publish(self._vector)
        return stats

    def _step(self, stream: np.random.Generator, beta: float, lr: float) -> tuple[float, float, float]:
        """One optimiser step; returns the loss, the mean Q-value and the mean absolute TD error."""
        config = self._config
        item, weight = self._sampler.draw(stream, config.batch_size, beta)
        batch = self._replay.gather(item)
        target = self._targets(batch)
        params, value = self._net(batch.obs, learns=True)
        q = q_values(params, value, dueling=config.dueling)
        taken = q[self._rows, batch.action]
        error = taken - target
        loss, slope = loss_and_slope(error, config.loss)
        if weight is not None:
            loss, slope = loss * weight, slope * weight
        d_q = np.zeros_like(q)
        d_q[self._rows, batch.action] = slope * np.float32(1.0 / len(item))
        self._net.pullback(*q_pullback(d_q, dueling=config.dueling))
        gradient = self._net.gradient
        if self.bad.is_bad(clip_norm(gradient, config.max_grad_norm), self.n_updates):
            return 0.0, 0.0, 0.0
        self._optimiser.step(gradient, lr)
        self.n_updates += 1
        self.samples += len(item)
        self._update_target()
        size = np.abs(error)
        self._sampler.update_priorities(item, size)
        return float(loss.mean()), float(taken.mean()), float(size.mean())

    def _targets(self, batch: Transitions) -> NDArray[np.float32]:
        dueling = self._config.dueling
        by_target = q_values(*self._target(batch.next_obs), dueling=dueling)
        by_online = q_values(*self._net(batch.next_obs), dueling=dueling) if self._config.double else by_target
        # Double DQN: the online network chooses the action, the target network evaluates it.
        return bootstrap_targets(batch.reward, batch.discount, by_online, by_target, batch.next_mask)

    def _update_target(self) -> None:
        if self._config.tau is not None:
            self._target_vector.lerp_(self._vector, self._config.tau)
        elif self.n_updates % self._config.target_update == 0:
            self._target_vector.copy_(self._vector)

    def state(self) -> dict[str, NDArray[Any]]:
        """State for a bit-exact resume, without the replay buffer."""
        return {
            "weights": self._weights.vector.numpy(),
            "target": self._target_vector.cpu().numpy(),
            "version": np.array(self._weights.version),
            "counts": np.array([self.n_updates, self.samples]),
            "bad_updates": self.bad.state(),
            "epsilon": np.array(self._epsilon.value),
            "progress": np.array(self._progress),
            **under("optimiser/", self._optimiser.state()),
        }

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`."""
        self.load_weights(state["weights"])
        self._target_vector.copy_(torch.from_numpy(state["target"]))
        self._weights.version = int(state["version"])
        self.n_updates, self.samples = (int(n) for n in state["counts"])
        self.bad.load(state["bad_updates"])
        self._epsilon.set(float(state["epsilon"]))
        self._progress = float(state.get("progress", 0.0))
        self._optimiser.load(part(state, "optimiser/"))

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Load the weights only, into both networks: a warm start."""
        vector = torch.from_numpy(weights)
        self._vector.copy_(vector)
        self._target_vector.copy_(vector)
        self._weights.vector.copy_(vector)


class Epsilon:
    """Exploration schedule; writes each env's epsilon to shared memory, where its worker reads it.

    Args:
        config: The schedule.
        envs: [B] epsilon of each env, in shared memory.
        groups: Groups of the run. With `epsilon_ladder`, each group has its own epsilon (as in Ape-X).
    """

    def __init__(self, config: DQNConfig, envs: NDArray[np.float32], groups: int) -> None:
        self._config, self._envs = config, envs
        rungs = np.arange(groups) / max(1, groups - 1)
        self._powers = np.repeat(1.0 + config.epsilon_ladder * rungs, len(envs) // groups)
        self.set(config.epsilon_start)

    def set(self, value: float) -> None:
        """Set the base epsilon; group g of G explores with `value ** (1 + epsilon_ladder * g / (G - 1))`."""
        self.value = value
        self._envs[:] = value**self._powers

    def advance(self, progress: float) -> None:
        """Advance the schedule after a batch.

        Args:
            progress: Fraction of the budget spent before that batch.
        """
        config = self._config
        if config.epsilon_decay is not None:
            self.set(max(config.epsilon_end, self.value * config.epsilon_decay))
            return
        share = min(1.0, progress / config.exploration_fraction) if config.exploration_fraction else 1.0
        self.set(config.epsilon_start + (config.epsilon_end - config.epsilon_start) * share)

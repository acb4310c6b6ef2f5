"""Asynchronous advantage actor-critic (Mnih et al. 2016): every worker updates one set of shared weights, lock-free.

    worker: copy the weights -> collect a slot -> gradient at that copy -> update the shared weights, without a lock
    driver: counts updates, evaluates, copies the weights for checkpoints

The gradient is PPO's with a ratio of one, and a worker's learner is a `PPOLearner` over its own slot. By the time a
worker applies its gradient, other workers have changed the weights. That is the lag; nothing corrects for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algos.action_std import ActionStd
from paceline.algos.bad_updates import BadUpdates
from paceline.batch import Trajectory
from paceline.measure.clock import Clock
from paceline.memory.parts import part, under
from paceline.memory.weights import LiveWeights, Weights
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.optimiser import Optimiser

SKIPPED = "skipped"
"""Key in a worker's statistics of a slot: updates skipped because the gradient was not finite."""


class A3CLearner:
    """The driver's side of A3C. It computes no gradients: workers do."""

    lag = 0
    """Always 0: the collector reports the lag of each slot."""

    def __init__(
        self,
        live: LiveWeights,
        weights: Weights,
        optimiser: Optimiser,
        worker_stats: Callable[[], list[dict[str, float]]],
        progress: NDArray[np.float64],
        clock: Clock,
        obs_norm: ObsNormaliser | None = None,
        action_std: ActionStd | None = None,
    ) -> None:
        """Copy the initial weights to the memory that workers update.

        Args:
            live: The shared weights, which workers update.
            weights: Receives a copy after each batch, for evaluation and checkpoints.
            optimiser: Holds the optimiser state that workers share.
            worker_stats: Returns the workers' statistics, one dict per slot of the last batch.
            progress: [1] fraction of the budget spent, for the workers' schedules; written here.
            clock: Records the time as `sync`.
            obs_norm: Observation normaliser; its statistics are updated here.
            action_std: Computes the statistic `std`; None for none.
        """
        self._live, self._weights, self._optimiser = live, weights, optimiser
        self._worker_stats, self._progress, self._clock, self._obs_norm = worker_stats, progress, clock, obs_norm
        self._action_std = action_std
        live.vector.copy_(weights.vector)
        # The sum over workers. Each worker also has a count of its own, and ends the run after too many in a row.
        self.bad = BadUpdates()

    @property
    def version(self) -> int:
        """Number of updates applied to the weights."""
        return self._live.version

    def update(self, batch: Trajectory, progress: float) -> dict[str, float]:
        """Account for a batch that workers have learned from already; returns the means of their statistics."""
        self._progress[0] = progress
        with self._clock.phase("sync"):
            if self._obs_norm is not None:
                valid = batch.valid.numpy()
                self._obs_norm.update({name: leaf[:-1].numpy() for name, leaf in batch.obs.items()}, valid)
            self._weights.publish(self._live.vector)
            std = {} if self._action_std is None else {"std": self._action_std(batch)}
        slots = self._worker_stats()
        self.bad.count += sum(int(slot.pop(SKIPPED)) for slot in slots)
        means = {name: float(np.mean([slot[name] for slot in slots])) for name in slots[0]}
        return {**means, **std, "n_updates": float(self.version)}

    def state(self) -> dict[str, NDArray[Any]]:
        """State for a checkpoint, with the latest copy of the weights: the shared ones change all the time."""
        return {
            "weights": self._weights.vector.numpy(),
            "version": np.array(self.version),
            "progress": self._progress.copy(),
            **under("optimiser/", {key: value.copy() for key, value in self._optimiser.state().items()}),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state()`."""
        self.load_weights(state["weights"])
        self._live.version = int(state["version"])
        self._progress[:] = state.get("progress", 0.0)  # workers read it before the first update() sets it
        self._optimiser.load(part(state, "optimiser/"))

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Load the weights only: a warm start."""
        vector = torch.from_numpy(weights)
        self._live.vector.copy_(vector)
        self._weights.vector.copy_(vector)

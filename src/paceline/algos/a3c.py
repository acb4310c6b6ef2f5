"""Asynchronous advantage actor-critic (Mnih et al. 2016): every worker learns by itself, on weights that all share.

    worker: copy the weights -> collect a slot -> gradient of that copy -> change the shared weights, without a lock
    driver: counts, evaluates, keeps copies

The gradient is PPO's with a ratio of one, and a worker's learner is a `PPOLearner` over its own slot. By the time it
is applied, others have changed the weights: that is the lag, and nothing corrects for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algos.bad_updates import BadUpdates
from paceline.batch import Trajectory
from paceline.measure.clock import Clock
from paceline.memory.parts import part, under
from paceline.memory.weights import LiveWeights, Weights
from paceline.nets.normalise import ObsNormaliser
from paceline.ops.optimiser import Optimiser

SKIPPED = "skipped"
"""What a worker calls the updates that it has left out, among its statistics of a slot."""


class A3CLearner:
    """The driver's part: it learns nothing itself."""

    lag = 0
    """Each slot has its own."""

    def __init__(
        self,
        live: LiveWeights,
        weights: Weights,
        optimiser: Optimiser,
        said: Callable[[], list[dict[str, float]]],
        progress: NDArray[np.float64],
        clock: Clock,
        obs_norm: ObsNormaliser | None = None,
    ) -> None:
        """Look after what workers learn.

        Args:
            live: What workers change.
            weights: Gets a copy after each batch, for evaluation and checkpoints.
            optimiser: With the state that workers share.
            said: Statistics of the slots of the last batch.
            progress: [1] share of the budget that is spent, for the schedules of workers.
            clock: Books the time as `sync`.
            obs_norm: Normaliser of observations; its statistics move on here.
        """
        self._live, self._weights, self._optimiser = live, weights, optimiser
        self._said, self._progress, self._clock, self._obs_norm = said, progress, clock, obs_norm
        live.vector.copy_(weights.vector)
        self.bad = BadUpdates()  # a sum: workers have their own, and one with too many in a row ends the run

    @property
    def version(self) -> int:
        """How many times the weights were changed."""
        return self._live.version

    def update(self, batch: Trajectory, progress: float) -> dict[str, float]:
        """Take in what workers have learned from already; returns the means of their statistics."""
        self._progress[0] = progress
        with self._clock.phase("sync"):
            if self._obs_norm is not None:
                valid = batch.valid.numpy()
                self._obs_norm.update({name: leaf[:-1].numpy() for name, leaf in batch.obs.items()}, valid)
            self._weights.publish(self._live.vector)
        said = self._said()
        self.bad.count += sum(int(one.pop(SKIPPED)) for one in said)
        means = {name: float(np.mean([one[name] for one in said])) for name in said[0]}
        return {**means, "n_updates": float(self.version)}

    def state(self) -> dict[str, NDArray[Any]]:
        """What a run goes on from: a copy of weights that never rest."""
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
        self._progress[:] = state.get("progress", 0.0)  # workers begin before anybody tells them more
        self._optimiser.load(part(state, "optimiser/"))

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Take over weights alone: a warm start."""
        vector = torch.from_numpy(weights)
        self._live.vector.copy_(vector)
        self._weights.vector.copy_(vector)

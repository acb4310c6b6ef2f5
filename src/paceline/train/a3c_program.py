"""What a worker of an A3C run is handed: it collects, learns from that, and changes the weights that all share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algos.a3c import SKIPPED
from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import ShardedGradient, ShardedUpdate
from paceline.algos.targets import GAETargets
from paceline.collect.inference_client import AnyCollector
from paceline.config.settings import A3CConfig
from paceline.measure.clock import Clock
from paceline.memory.shards import Shards, ShardShape
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_copies import copy_columns
from paceline.memory.slots import Slots
from paceline.memory.weights import LiveWeights, Weights
from paceline.ops.adam import FlatAdam
from paceline.ops.optimiser import Optimiser
from paceline.ops.rmsprop import FlatRMSProp
from paceline.ops.surrogate import TERMS
from paceline.runtime.protocol import Share
from paceline.train.async_program import AsyncProgram
from paceline.train.program import WorkerProgram
from paceline.train.slot_scheduler import Collected


class A3CJob:
    """Collects a slot with a copy of the weights, and learns from it.

    Args:
        collector: Acts with the copy.
        learner: Learns from `learning` with the copy, and changes what is shared.
        live: What is shared.
        shared: The weights, and whatever else acting needs, as they are now; each with its place in the copy.
        sets: Where slots are collected.
        columns: The worker's own.
        learning: Where the learner finds a slot.
        progress: [1] share of the budget that is spent.
    """

    def __init__(
        self,
        collector: AnyCollector,
        learner: PPOLearner,
        live: LiveWeights,
        shared: list[tuple[NDArray[np.float32], NDArray[np.float32]]],
        sets: list[Slots],
        columns: slice,
        learning: Slots,
        progress: NDArray[np.float64],
    ) -> None:
        self._collector, self._learner, self._live, self._shared = collector, learner, live, shared
        self._sets, self._columns, self._learning, self._progress = sets, columns, learning, progress

    def reset(self) -> None:
        """Begin every env's episode."""
        self._collector.reset()

    def collect(self, step: int, into: int) -> Collected:
        """Fill one set of slots, learn from it, and change the shared weights."""
        version = self._live.version
        for now, copy in self._shared:
            copy[...] = now
        times = self._collector.collect(step, into)
        began = perf_counter()
        copy_columns(self._sets[into], self._columns, into=self._learning, at=0)
        skipped = self._learner.bad.count
        stats = self._learner.update(self._learning.trajectory(version), float(self._progress[0]))
        stats[SKIPPED] = float(self._learner.bad.count - skipped)
        return Collected(
            into=into,
            version=version,
            times=times._replace(learn_s=perf_counter() - began),
            lag=self._live.version - version - 1,  # without its own change
            stats=stats,
        )

    def close(self) -> None:
        """Close the envs."""
        self._collector.close()


@dataclass(frozen=True, slots=True)
class A3CProgram:
    """Builds the job of one worker's share of the groups.

    Args:
        plan: Whatever does not depend on who learns.
        training: Settings.
        workers: How many there are.
    """

    plan: AsyncProgram
    training: A3CConfig
    workers: int

    def fields(self, weights: int, workers: int) -> list[Field]:
        """Everything that workers and driver share."""
        return [
            *self.plan.collecting(weights, workers),
            *LiveWeights.fields(weights, workers),
            Field.of("moments", (2, weights), np.float32),
            Field.of("moment_steps", (1,), np.float32),
            Field.of("progress", (1,), np.float64),
        ]

    @property
    def base(self) -> WorkerProgram:
        """What collecting needs."""
        return self.plan.base

    def weights(self, arena: Arena) -> Weights:
        """A copy of the newest weights, made by the driver; it is where the first ones are put."""
        return Weights(arena)

    def optimiser(self, arena: Arena) -> Optimiser:
        """One whose state all share."""
        vector, moments = torch.from_numpy(arena["live"]), torch.from_numpy(arena["moments"])
        if self.training.optimizer == "rmsprop":
            return FlatRMSProp(vector, square=moments[1])
        return FlatAdam(vector, moments=moments, steps=torch.from_numpy(arena["moment_steps"])[0])

    def __call__(self, arena: Arena, share: Share) -> A3CJob:
        """Build the envs, the policy and the learner. Runs inside the worker."""
        base, size = self.plan.base, self.plan.base.shape.group_size
        originals = {"weights": arena["live"], **{field.name: arena[field.name] for field in base.norms()}}
        copies = {name: np.empty_like(array) for name, array in originals.items()}
        shape = replace(base.shape, groups=share.groups)
        rows = shape.n_steps * shape.n_envs
        fields = [*shape.fields(), *ShardShape(rows, 1, len(arena["live"]), len(TERMS)).fields()]
        own = {field.name: np.zeros(field.shape, field.dtype) for field in fields}
        learning, shards = Slots(own, shape), Shards(own)
        live = LiveWeights(arena, share.worker)
        config = self.training.of_worker(share.worker, self.workers)
        local_gradient = ShardedGradient(base.gradient_of(copies.__getitem__, config), learning, shards)
        learner = PPOLearner(
            live.vector,
            live,
            ShardedUpdate(local_gradient.all, shards),
            shards,
            GAETargets(config.gamma, config.gae_lambda),
            self.optimiser(arena),
            config,
            seed=base.seed,
            clock=Clock(),
        )
        first = share.first_group * size
        return A3CJob(
            base.collector(arena, share, self.plan.slot_sets(arena), copies.__getitem__),
            learner,
            live,
            [(originals[name], copies[name]) for name in originals],
            self.plan.slot_sets(arena),
            slice(first, first + shape.n_envs),
            learning,
            arena["progress"],
        )

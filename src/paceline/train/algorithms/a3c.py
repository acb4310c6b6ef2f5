"""A3C: every worker learns from its own slots and updates weights that all workers share, without a lock.

worker: copy the weights -> fill a slot -> gradient at that copy -> update the shared weights
driver: counts the updates, evaluates, copies the weights for checkpoints
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.algos.a3c import SKIPPED, A3CLearner
from paceline.algos.action_std import action_std
from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import ShardedGradient, ShardedUpdate
from paceline.algos.targets import GAETargets
from paceline.config.a3c_settings import A3CConfig
from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.measure.clock import Clock
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_copies import copy_columns
from paceline.memory.slots import Slots
from paceline.memory.weights import LiveWeights
from paceline.ops.adam import FlatAdam
from paceline.ops.optimiser import Optimiser
from paceline.ops.rmsprop import FlatRMSProp
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import Transfer
from paceline.train.algorithms.surrogate import surrogate_gradient
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.layout import Layout
from paceline.train.league import in_league
from paceline.train.loop import Driver
from paceline.train.plan import Algorithm, AnyDriver, DriverParts
from paceline.train.rollout_job import CollectorJob
from paceline.train.slot_scheduler import SlotReport
from paceline.train.slot_sets import SlotPlan
from paceline.train.worker_recipe import WorkerRecipe


@dataclass
class A3CJob(CollectorJob):
    """Fills a slot with a copy of the weights, learns from it, and updates the shared weights."""

    learner: PPOLearner
    """Computes gradients at the copy, and updates the shared weights."""
    live: LiveWeights
    """The shared weights."""
    shared: list[tuple[NDArray[np.float32], NDArray[np.float32]]]
    """Pairs of a shared array (weights, observation statistics) and the copy of it that the worker acts with."""
    sets: list[Slots]
    """The sets of slots, in shared memory."""
    columns: slice
    """The worker's columns in them."""
    learning: Slots
    """Private memory to which a full slot is copied for the learner."""
    progress: NDArray[np.float64]
    """[1] fraction of the budget spent."""

    def collect(self, step: int, into: int) -> SlotReport:
        """Fill the worker's slot of set `into`, learn from it, and update the shared weights."""
        version = self.live.version
        for array, copy in self.shared:
            copy[...] = array
        times = self.collector.collect(step, into)
        began = perf_counter()
        copy_columns(self.sets[into], self.columns, into=self.learning, at=0)
        skipped = self.learner.bad.count
        stats = self.learner.update(self.learning.trajectory(version), float(self.progress[0]))
        stats[SKIPPED] = float(self.learner.bad.count - skipped)
        return SlotReport(
            into=into,
            version=version,
            times=times._replace(learn_s=perf_counter() - began),
            lag=self.live.version - version - 1,  # without this worker's own update
            stats=stats,
        )


@dataclass(frozen=True, kw_only=True)
class A3CPlan(SlotPlan[A3CJob]):
    """The plan of A3C. See `Plan`. The published weights are the driver's copy of the shared weights."""

    settings: A3CConfig

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""
        return [
            *super().fields(weights, workers),
            *LiveWeights.fields(weights, workers),
            Field.of("moments", (2, weights), np.float32),
            Field.of("moment_steps", (1,), np.float32),
            Field.of("progress", (1,), np.float64),
        ]

    def transfer(self, weights: int) -> Transfer[A3CJob]:  # noqa: ARG002 - always raises
        """See `Plan.transfer`: always raises."""
        raise ConfigError("runtime=ray: workers of a3c share their weights in place, on one machine. Use impala.")

    def optimiser(self, arena: Arena) -> Optimiser:
        """Return an optimiser of the shared weights, with its state in shared memory too."""
        vector, moments = torch.from_numpy(arena["live"]), torch.from_numpy(arena["moments"])
        if self.settings.optimizer == "rmsprop":
            return FlatRMSProp(vector, square=moments[1])
        return FlatAdam(vector, moments=moments, steps=torch.from_numpy(arena["moment_steps"])[0])

    def __call__(self, arena: Arena, share: Share) -> A3CJob:
        """Build the envs, the policy and the learner of one worker. Runs inside the worker."""
        base = self.base
        originals = {"weights": arena["live"], **{field.name: arena[field.name] for field in base.norms()}}
        copies = {name: np.empty_like(array) for name, array in originals.items()}
        shape = replace(base.shape, groups=share.groups)
        fields = [*shape.fields(), *Shards.fields(shape.n_steps * shape.n_envs, 1, len(arena["live"]))]
        own = {field.name: np.zeros(field.shape, field.dtype) for field in fields}
        learning, shards = Slots(own, shape), Shards(own)
        live = LiveWeights(arena, share.worker)
        settings = self.settings.of_worker(share.worker, self.workers)
        gradient = ShardedGradient(surrogate_gradient(base, settings, copies.__getitem__), learning, shards)
        learner = PPOLearner(
            live.vector,
            live,
            ShardedUpdate(gradient.all, shards),
            shards,
            GAETargets(settings.gamma, settings.gae_lambda),
            self.optimiser(arena),
            settings,
            seed=base.seed,
            clock=Clock(),
        )
        return A3CJob(
            base.collector(arena, share, self.slots(arena), copies.__getitem__),
            learner,
            live,
            [(originals[name], copies[name]) for name in originals],
            self.slots(arena),
            base.shape.columns(share.first_group, share.groups),
            learning,
            arena["progress"],
        )

    def driver(self, parts: DriverParts[A3CJob]) -> AnyDriver:
        """See `Plan.driver`."""
        arena = parts.arena
        collector = AsyncRollouts(self.scheduler(parts), self.batch(arena), parts.clock, batch_slots=self.batch_slots)
        learner = A3CLearner(
            LiveWeights(arena),
            parts.weights,
            self.optimiser(arena),
            collector.worker_stats,
            arena["progress"],
            parts.clock,
            parts.obs_norm,
            action_std(parts.mirror, self.base.shape.spec, parts.obs_norm),
        )
        return Driver(collector, in_league(learner, parts.league))


def _plan(config: TrainConfig, base: WorkerRecipe, layout: Layout) -> A3CPlan:
    settings = config.training
    if not isinstance(settings, A3CConfig):
        raise TypeError(f"a3c: expected A3CConfig, got {type(settings).__name__}")
    return A3CPlan(base=base, settings=settings, workers=max(1, layout.num_workers))


A3C = Algorithm(_plan)

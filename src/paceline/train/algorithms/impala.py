"""IMPALA and APPO: workers collect without waiting; the learner takes full slots and corrects for their lag by V-trace.

    worker: copy the newest weights -> fill a slot -> copy the newest weights -> fill the next slot ...
    driver: full slots -> batch -> V-trace -> update -> snapshot of the weights

APPO differs from IMPALA in its loss alone: PPO's clipped surrogate (`ImpalaConfig.proximal`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.algos.targets import VTraceTargets
from paceline.config.impala_settings import ImpalaConfig
from paceline.config.train_config import TrainConfig
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena, Field
from paceline.ops.distributions import head_for
from paceline.runtime.protocol import Share
from paceline.train.algorithms.surrogate import gradient_of, gradients_for, surrogate_learner
from paceline.train.async_rollouts import AsyncRollouts
from paceline.train.layout import Layout
from paceline.train.league import in_league
from paceline.train.loop import Driver
from paceline.train.plan import Algorithm, AnyDriver, DriverParts
from paceline.train.rollout_job import CollectorJob
from paceline.train.rollout_transfer import SlotTransfer
from paceline.train.slot_scheduler import SlotReport
from paceline.train.slot_sets import SlotPlan
from paceline.train.worker_recipe import WorkerRecipe


@dataclass
class AsyncJob(CollectorJob):
    """Fills the requested slots, and copies the newest weights before every slot, or before every n-th one.

    The collector acts with the worker's own copy of the weights.
    """

    renew: Callable[[], int]
    """Copies the newest weights into that copy; returns their version."""
    begun: NDArray[np.int64]
    """[sets] version of the weights with which each set is being filled, for the driver to read."""
    sync_every: int
    """Number of slots that are filled with one copy."""
    slots: int = 0
    """Number of slots filled so far."""
    version: int = 0
    """Version of the copy."""

    def collect(self, step: int, into: int) -> SlotReport:
        """Fill the worker's slot of set `into`."""
        if self.slots % self.sync_every == 0:
            self.version = self.renew()
        self.slots += 1
        self.begun[into] = self.version
        return SlotReport(into=into, version=self.version, times=self.collector.collect(step, into))


@dataclass(frozen=True, kw_only=True)
class ImpalaPlan(SlotPlan[AsyncJob]):
    """The plan of IMPALA and APPO. See `Plan`."""

    settings: ImpalaConfig
    shards: int
    """Shards of a minibatch's gradient, which the driver computes one after another."""

    @property
    def acts_on_snapshots(self) -> bool:
        """See `Plan.acts_on_snapshots`."""
        return True

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""
        rows = self.batch_shape.n_steps * self.batch_shape.n_envs
        return [*super().fields(weights, workers), *Shards.fields(rows, self.shards, weights)]

    def transfer(self, weights: int) -> SlotTransfer[AsyncJob]:
        """See `Plan.transfer`."""
        return SlotTransfer(self, weights)

    def __call__(self, arena: Arena, share: Share) -> AsyncJob:
        """Build the envs and the policy of one worker. Runs inside the worker."""
        # Even with central inference, the worker computes the values of final observations with this copy.
        arrays, renew = self.acting(arena)
        collector = self.base.collector(arena, share, self.slots(arena), arrays)
        return AsyncJob(collector, renew, arena["begun_version"][share.worker], self.settings.sync_every)

    def driver(self, parts: DriverParts[AsyncJob]) -> AnyDriver:
        """See `Plan.driver`."""
        settings, arena, spec = self.settings, parts.arena, self.base.shape.spec
        batch = self.batch(arena)
        collector = AsyncRollouts(
            self.scheduler(parts),
            batch,
            parts.clock,
            batch_slots=self.batch_slots,
            max_lag=settings.max_lag,
            on_lag=settings.on_lag,
        )
        targets = VTraceTargets(settings, parts.mirror, head_for(spec.action), spec, parts.obs_norm)
        # Workers collect all the time, so the driver computes all shards itself.
        gradient = gradient_of(self.base, settings, arena, batch)
        gradients = gradients_for(parts, self.base, settings, batch, gradient.all)
        return Driver(collector, in_league(surrogate_learner(parts, spec, settings, gradients, targets), parts.league))


def _plan(config: TrainConfig, base: WorkerRecipe, layout: Layout) -> ImpalaPlan:
    settings = config.training
    if not isinstance(settings, ImpalaConfig):
        raise TypeError(f"impala: expected ImpalaConfig, got {type(settings).__name__}")
    shards = config.grad_shards(image=base.shape.spec.has_image)
    return ImpalaPlan(base=base, settings=settings, workers=max(1, layout.num_workers), shards=shards)


IMPALA = Algorithm(_plan)
APPO = IMPALA

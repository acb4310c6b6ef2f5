"""The memory of asynchronous rollouts: several sets of slots, and a batch into which full slots are copied.

worker 0   set 0 [filled]  set 1 [filling] --+
                                             +--copy--> batch "learning/" --> learner
worker 1   set 0 [filling] set 1 [filled] ---+
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from paceline.config.a3c_settings import A3CConfig
from paceline.config.impala_settings import ImpalaConfig
from paceline.errors import ConfigError
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.train.plan import DriverParts, Plan
from paceline.train.recipes import restarts_for
from paceline.train.slot_scheduler import SlotJob, SlotScheduler

S = TypeVar("S", bound=SlotJob)
BATCH = "learning/"
"""Prefix of the fields of the batch."""


@dataclass(frozen=True, kw_only=True)
class SlotPlan(Plan[S]):
    """A plan whose workers fill slots without waiting for each other; the driver puts batches together from them."""

    settings: ImpalaConfig | A3CConfig
    workers: int
    """Number of workers; 1 without worker processes."""

    def __post_init__(self) -> None:
        """Check the size of a batch.

        Raises:
            ConfigError: A batch has more slots than all workers together.
        """
        slots_per_worker = self.settings.slots_per_worker
        if self.batch_slots > self.workers * slots_per_worker:
            raise ConfigError(
                f"batch_slots={self.batch_slots}: {self.workers} worker(s) with slots_per_worker={slots_per_worker} "
                f"can fill {self.workers * slots_per_worker} slots before an update. Lower it, or raise "
                "--slots-per-worker."
            )

    @property
    def batch_slots(self) -> int:
        """Number of slots in a batch."""
        return self.settings.batch_slots or self.workers

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`: slots, batch, weights, and what else workers need."""
        sets = self.settings.slots_per_worker
        return [
            *(field for number in range(sets) for field in self.base.shape.fields(f"{number}/")),
            *self.batch_shape.fields(BATCH),
            *self.snapshot_fields(weights),
            *self.base.worker_fields(weights, workers),
            Field.of("begun_version", (max(1, workers), sets), np.int64),
        ]

    @property
    def batch_shape(self) -> SlotShape:
        """Shape of a batch: enough groups for the slots of the workers with most groups."""
        most = -(-self.base.shape.groups // self.workers)
        return replace(self.base.shape, groups=self.batch_slots * most)

    def slots(self, arena: Arena) -> list[Slots]:
        """Return the sets of slots, into which workers collect."""
        return [Slots(arena, self.base.shape, f"{number}/") for number in range(self.settings.slots_per_worker)]

    def batch(self, arena: Arena) -> Slots:
        """Return the memory of a batch, which only the driver uses."""
        return Slots(arena, self.batch_shape, BATCH)

    def scheduler(self, parts: DriverParts[S]) -> SlotScheduler:
        """Build the scheduler that requests these slots from the workers."""
        arena = parts.arena
        return SlotScheduler(
            restarts_for(parts.config, parts.runtime),
            self.slots(arena),
            arena["begun_version"],
            arena["episode"],
            parts.tracker,
            parts.weights.renew,
        )

"""What a worker of an asynchronous run is handed: it collects from weights of its own, renewed as it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.collect.inference_client import AnyCollector, InferenceChannel, connect
from paceline.memory.shards import ShardShape
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.memory.weights import Snapshots, Weights
from paceline.memory.worker_status import heartbeat_field
from paceline.ops.surrogate import TERMS
from paceline.runtime.protocol import Share
from paceline.train.program import LEARNING, WorkerProgram
from paceline.train.slot_scheduler import Collected


class AsyncJob:
    """Collects into whatever set it is told to, with the newest weights at the beginning of every slot, or of some.

    Args:
        collector: Acts with `private`.
        snapshots: The newest weights.
        private: Its own copy of them.
        begun: [sets] the version that each set is being collected with, for the learner to see.
        sync_every: Slots collected with one copy.
    """

    def __init__(
        self,
        collector: AnyCollector,
        snapshots: Snapshots,
        private: NDArray[np.float32],
        begun: NDArray[np.int64],
        sync_every: int,
    ) -> None:
        self._collector, self._snapshots, self._private = collector, snapshots, private
        self._begun, self._sync_every = begun, sync_every
        self._slots = self._version = 0

    def connect(self, asker: InferenceChannel) -> None:
        """Whom to ask, where the policy is elsewhere."""
        connect(self._collector, asker)

    def reset(self) -> None:
        """Begin every env's episode."""
        self._collector.reset()

    def collect(self, step: int, into: int) -> Collected:
        """Fill one set of slots."""
        if self._slots % self._sync_every == 0:
            self._version = self._snapshots.copy(self._private)
        self._slots += 1
        self._begun[into] = self._version
        return Collected(into=into, version=self._version, times=self._collector.collect(step, into))

    def close(self) -> None:
        """Close the envs."""
        self._collector.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class AsyncProgram:
    """Builds the job of one worker's share of the groups."""

    base: WorkerProgram
    sets: int
    """Slots that a worker may have filled or be filling."""
    sync_every: int
    batch_slots: int
    """Slots that make a batch."""
    batch_groups: int
    """Groups that a batch has room for."""

    def fields(self, weights: int, workers: int) -> list[Field]:
        """Everything that workers and driver share."""
        learning, acting = self._learning(), [*Weights.fields(weights)[:1], *self.base.norms()]
        return [
            *self.collecting(weights, workers),
            *ShardShape(learning.n_steps * learning.n_envs, self.base.shards, weights, len(TERMS)).fields(),
            *Snapshots.fields(acting),
        ]

    def collecting(self, weights: int, workers: int) -> list[Field]:
        """The same without what the driver needs to learn, and to have workers act with what it learned."""
        base = self.base
        return [
            *(field for number in range(self.sets) for field in base.shape.fields(f"{number}/")),
            *self._learning().fields(LEARNING),
            *Weights.fields(weights),
            *base.norms(),
            *base.league_fields(weights),
            *base.central_fields(workers),
            Field.of("begun_version", (max(1, workers), self.sets), np.int64),
            Field.of("episode", (base.shape.n_envs,), np.int64),
            heartbeat_field(workers),
        ]

    @property
    def plan(self) -> AsyncProgram:
        """Itself: the program of A3C is built around one of these."""
        return self

    def snapshots(self, arena: Arena) -> Snapshots:
        """Where every version of the weights goes, and of the statistics of observations."""
        return Snapshots(arena, ["weights", *(field.name for field in self.base.norms())])

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
        """The weights and statistics to act with, by name: a copy; and what takes over the newest."""
        snapshots = self.snapshots(arena)
        private, parts = snapshots.private()
        return parts.__getitem__, partial(snapshots.copy, private)

    def weights(self, arena: Arena) -> Weights:
        """The newest weights."""
        return Weights(arena, self.snapshots(arena))

    def gradient(self, arena: Arena) -> ShardedGradient:
        """A part of learning."""
        return self.base.gradient(arena, self.slots(arena))

    def compiled(self, rows: int | None) -> AsyncProgram:
        """The same, with gradients compiled for so many rows."""
        return replace(self, base=self.base.compiled(rows))

    def slot_sets(self, arena: Arena) -> list[Slots]:
        """Where workers collect."""
        return [Slots(arena, self.base.shape, f"{number}/") for number in range(self.sets)]

    def slots(self, arena: Arena) -> Slots:
        """Where the learner finds a batch."""
        return Slots(arena, self._learning(), LEARNING)

    def _learning(self) -> SlotShape:
        return replace(self.base.shape, groups=self.batch_groups)

    def __call__(self, arena: Arena, share: Share) -> AsyncJob:
        """Build the envs and the policy. Runs inside the worker."""
        # With central inference the driver acts; the values of last observations are this copy's all the same.
        snapshots = self.snapshots(arena)
        private, parts = snapshots.private()
        return AsyncJob(
            self.base.collector(arena, share, self.slot_sets(arena), parts.__getitem__),
            snapshots,
            private,
            arena["begun_version"][share.worker],
            self.sync_every,
        )

"""The training loop of every algorithm, mode and runtime: read this file first.

    envs -> collect ---- batch(version n) ----> Learner.update --+
              ^------------- weights(version n+1) <--------------+

Data goes one way, weights come back, statistics leave by return value. The modes differ only in when the
envs step:

    mode           next(version)                               release()
    synchronous    collects a rollout                          does nothing
    pipeline       returns the pending rollout and starts      waits for the rollout that `next` started
                   to collect the next one
    asynchronous   returns the slots that are filled first     requests those slots again from the workers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from paceline.algos.bad_updates import BadUpdates
from paceline.collect.times import CollectTimes
from paceline.measure.episodes import Episodes
from paceline.runtime.protocol import Job
from paceline.train.checkpoint import State
from paceline.train.replay_access import ReplayAccess
from paceline.train.restarts import Restarts

Batch = TypeVar("Batch")
"""The input of one update: a trajectory, or with a replay buffer the number of gradient steps that are due."""
BatchOut = TypeVar("BatchOut", covariant=True)
BatchIn = TypeVar("BatchIn", contravariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectReport:
    """What a collector measured between its last two batches."""

    times: Sequence[CollectTimes] = ()
    """Time that each worker spent per phase, in worker order."""
    finished: Episodes
    """Episodes that ended."""
    lags: Sequence[int] = ()
    """Lag of each slot in the batch, in updates. Empty if all slots have the same lag, which is then `Learner.lag`."""
    dropped_steps: int = 0
    """Steps since the start of the run that were collected but not used for learning."""


class Collector(Protocol[BatchOut]):
    """Steps the envs, in this process or in workers, and returns batches."""

    @property
    def last(self) -> CollectReport:
        """Report on the last batch."""

    @property
    def restarts(self) -> Restarts[Job]:
        """Replaces lost workers and counts the replacements."""

    def reset(self) -> None:
        """Start the first episode of every env. Call either this or `load` once, before `next`."""

    def next(self, version: int) -> BatchOut:
        """Return a batch for weights of `version` to learn from. Blocks until it is complete.

        Raises:
            WorkerError: A worker failed and cannot be replaced.
        """

    def release(self) -> None:
        """Allow what the last batch was collected in to be filled again. Call it after the update."""

    def extras(self) -> Mapping[str, NDArray[Any]]:
        """Return the extras of the last batch by name, [T+1, B, ...] each: `info` values read with each observation."""

    def state(self) -> State:
        """Return everything that `load` needs, for a checkpoint. Call it between `release` and `next`.

        It may also be called after StopNow has left `next` or `release`. It then returns the state of the last update,
        as far as possible, and only `close` may follow.
        """

    def load(self, state: State) -> list[int]:
        """Continue from `state()`; returns the envs that could not be restored and have started a new episode."""


class Learner(Protocol[BatchIn]):
    """Computes the next version of the weights from a batch."""

    @property
    def version(self) -> int:
        """Version of the newest weights."""

    @property
    def lag(self) -> int:
        """Number of updates between the weights that collected the last batch and the weights that learned from it."""

    @property
    def bad(self) -> BadUpdates:
        """Counts updates that were skipped because the gradient was not finite."""

    def update(self, batch: BatchIn, progress: float) -> dict[str, float]:
        """Learn from a batch and publish the new weights.

        Args:
            batch: From `Collector.next`.
            progress: Fraction of the budget that is spent, for schedules.

        Returns:
            Statistics, by the names of the `train/` tags.
        """

    def state(self) -> State:
        """Return everything that a bit-exact resume needs, including the weights."""

    def load(self, state: State) -> None:
        """Continue from `state()`."""

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Copy these weights and nothing else (a warm start)."""


class Budget(Protocol):
    """Decides when training stops."""

    def spent(self) -> bool:
        """Return whether training should stop."""

    def progress(self) -> float:
        """Return the fraction of the budget that is spent, in [0, 1]."""


class Record(Protocol):
    """Bookkeeping that the loop calls: callbacks, log, evaluation, checkpoints."""

    def collected(self) -> None:
        """Called after `Collector.next`, before the update."""

    def updated(self, stats: dict[str, float]) -> None:
        """Called after every update, when the batch has been released."""


@dataclass(frozen=True, slots=True)
class Driver(Generic[Batch]):
    """The training loop of one collector and one learner."""

    collector: Collector[Batch]
    learner: Learner[Batch]
    replay: ReplayAccess | None = None
    """Direct access to the replay buffer, for the Python API; None if the algorithm has no replay buffer."""

    def train(self, budget: Budget, record: Record) -> None:
        """Collect a batch and learn from it, until the budget is spent. This is the training loop."""
        collector, learner = self.collector, self.learner
        while not budget.spent():
            progress = budget.progress()
            batch = collector.next(learner.version)
            record.collected()
            stats = learner.update(batch, progress)
            collector.release()
            record.updated(stats)

    def iterate(self, progress: float = 0.0) -> None:
        """Run one pass of the loop without bookkeeping, for benchmarks."""
        batch = self.collector.next(self.learner.version)
        self.learner.update(batch, progress)
        self.collector.release()

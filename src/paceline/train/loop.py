"""The training loop of every algorithm, mode and runtime: read this file first.

    envs -> collect ---- batch(version n) ----> Learner.update --+
              ^------------- weights(version n+1) <--------------+

Data goes one way, weights come back, statistics leave by return value. The modes differ only in when a collector
has its envs step:

    mode           next(version)                               release()
    synchronous    collects a rollout                          does nothing
    pipeline       returns the pending rollout, begins the     waits for the rollout that `next` began
                   one after it
    asynchronous   returns the slots that are filled first     hands their memory back to the workers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from paceline.algos.bad_updates import BadUpdates
from paceline.collect.times import CollectTimes
from paceline.measure.episodes import Episodes
from paceline.runtime.protocol import Job
from paceline.train.replay_access import ReplayAccess
from paceline.train.restarts import Restarts

Batch = TypeVar("Batch")
"""The input of one update: a trajectory, or with a replay the number of gradient steps that are due."""
BatchOut = TypeVar("BatchOut", covariant=True)
BatchIn = TypeVar("BatchIn", contravariant=True)

State: TypeAlias = dict[str, NDArray[Any]]
"""Named arrays, as a checkpoint stores them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectReport:
    """What a collector measured between its last two batches."""

    times: Sequence[CollectTimes] = ()
    """Where each worker's time went, in worker order."""
    finished: Episodes
    """Episodes that ended."""
    lags: Sequence[int] = ()
    """Lag of each slot in the batch; empty where all of a batch has one version, which the learner compares itself."""
    dropped_steps: int = 0
    """Steps of the whole run that were collected and not learned from."""


class Collector(Protocol[BatchOut]):
    """Has envs step, in this process or in workers, and returns batches."""

    @property
    def last(self) -> CollectReport:
        """The report on the last batch."""

    @property
    def restarts(self) -> Restarts[Job]:
        """Replaces workers that died, and counts them."""

    def reset(self) -> None:
        """Start the first episode of every env. Call this once, before `next`, unless `load` is called."""

    def next(self, version: int) -> BatchOut:
        """Return a batch for weights of `version` to learn from. Blocks until it is complete.

        Raises:
            WorkerError: A worker failed and cannot be replaced.
        """

    def release(self) -> None:
        """The learner is done with the batch: its memory may be overwritten."""

    def extras(self) -> Mapping[str, NDArray[Any]]:
        """[T+1, B, ...] values that the env returned beside the observations of the last batch, by name."""

    def state(self) -> State:
        """Everything that `load` needs. Call it between `release` and `next` only."""

    def load(self, state: State) -> list[int]:
        """Continue from `state()`; returns the envs that could not be restored and started a new episode."""


class Learner(Protocol[BatchIn]):
    """Computes the next version of the weights from a batch."""

    @property
    def version(self) -> int:
        """Version of the newest weights."""

    @property
    def lag(self) -> int:
        """Updates between the weights that collected the last batch and those that learned from it."""

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
        """Everything that a bit-exact resume needs, weights included."""

    def load(self, state: State) -> None:
        """Continue from `state()`."""

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        """Take over weights alone (a warm start)."""


class Budget(Protocol):
    """Decides when training stops."""

    def spent(self) -> bool:
        """Whether training is over."""

    def progress(self) -> float:
        """Fraction of the budget that is spent."""


class Record(Protocol):
    """Bookkeeping between the steps of the loop: callbacks, log, evaluation, checkpoints."""

    def collected(self) -> None:
        """Called when a batch is complete, before the learner sees it."""

    def updated(self, stats: dict[str, float]) -> None:
        """Called after every update, when the batch is released."""


@dataclass(frozen=True, slots=True)
class Driver(Generic[Batch]):
    """A collector, and the learner that takes its batches."""

    collector: Collector[Batch]
    learner: Learner[Batch]
    replay: ReplayAccess | None = None
    """Direct access to the replay buffer, for algorithms that have one."""

    def train(self, budget: Budget, record: Record) -> None:
        """Collect, learn, publish, until the budget is spent. This is the training loop."""
        collector, learner = self.collector, self.learner
        while not budget.spent():
            progress = budget.progress()
            batch = collector.next(learner.version)
            record.collected()
            stats = learner.update(batch, progress)
            collector.release()
            record.updated(stats)

    def iterate(self, progress: float = 0.0) -> None:
        """One pass of the loop without bookkeeping, for measurements."""
        batch = self.collector.next(self.learner.version)
        self.learner.update(batch, progress)
        self.collector.release()

"""The training loops: read this first. One function per topology, and no branching on topology anywhere else.

    envs -> collect ---- slot(version n) ----> Learner.update --+
              ^------------- weights(version n+1) <-------------+

    train_sync       collect, learn, collect, learn: no lag
    train_pipeline   both at once: every batch is one update old
    train_async      workers never wait: batches are as old as they happen to be, within bounds

Data goes one way, weights come back, statistics leave by return value.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

Batch = TypeVar("Batch")
"""What one call of the learner eats: a trajectory, or with a replay the number of updates that are due."""
BatchOut = TypeVar("BatchOut", covariant=True)
BatchIn = TypeVar("BatchIn", contravariant=True)


class Collector(Protocol[BatchOut]):
    """Fills a batch with steps of every env."""

    def collect(self, version: int) -> BatchOut:
        """Collect one rollout with the weights of `version`. Blocks until all workers are done."""


class PipelineCollector(Protocol[BatchOut]):
    """The same in two halves."""

    def first(self, version: int) -> BatchOut:
        """The whole, unless a checkpoint kept a batch that was not learned from: then that one."""

    def begin(self, version: int) -> None:
        """The first half of a batch: returns at once."""

    def finish(self) -> BatchOut:
        """The second half: waits."""


class AsyncCollector(Protocol[BatchOut]):
    """Has batches whenever they are ready."""

    def next_batch(self, version: int) -> BatchOut:
        """What is ready first, for weights of `version` to learn from. Blocks until there is enough."""

    def release(self) -> None:
        """The batch was learned from: its memory may be written again."""


class Learner(Protocol[BatchIn]):
    """Turns a batch into the next version of the weights."""

    @property
    def version(self) -> int:
        """Of the newest weights."""

    def update(self, batch: BatchIn, progress: float) -> dict[str, float]:
        """Learn, publish, and return statistics."""


class Budget(Protocol):
    """Says when to stop."""

    def spent(self) -> bool:
        """Whether training is over."""

    def progress(self) -> float:
        """The share of the budget that is spent."""


class Record(Protocol):
    """Keeps what happened: files, display, evaluation, checkpoints."""

    def __call__(self, stats: dict[str, float]) -> None:
        """Called after every update."""


def train_sync(collector: Collector[Batch], learner: Learner[Batch], budget: Budget, record: Record) -> None:
    """Collect with the newest weights, learn, publish, until the budget is spent."""
    while not budget.spent():
        progress = budget.progress()
        batch = collector.collect(learner.version)
        record(learner.update(batch, progress))


def train_pipeline(
    collector: PipelineCollector[Batch], learner: Learner[Batch], budget: Budget, record: Record
) -> None:
    """Collect the next batch while learning from this one: every batch is exactly one update old.

    The batch that is under way when the budget is spent stays for a run that goes on from here.
    """
    batch = collector.first(learner.version)
    while not budget.spent():
        progress = budget.progress()
        collector.begin(learner.version)
        stats = learner.update(batch, progress)
        batch = collector.finish()
        record(stats)


def train_async(collector: AsyncCollector[Batch], learner: Learner[Batch], budget: Budget, record: Record) -> None:
    """Learn from whatever is ready first, while workers go on."""
    while not budget.spent():
        progress = budget.progress()
        stats = learner.update(collector.next_batch(learner.version), progress)
        collector.release()
        record(stats)

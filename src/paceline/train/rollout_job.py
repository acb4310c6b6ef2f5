"""The jobs of workers that collect rollouts; in synchronous training they also compute gradients on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.collect.rollout import InterleavedCollectors
from paceline.collect.times import CollectTimes
from paceline.envs.block import History
from paceline.runtime.protocol import InferenceChannel


@dataclass
class CollectorJob:
    """What the jobs of all algorithms that learn from rollouts have in common. Owns the collector."""

    collector: InterleavedCollectors

    def connect(self, channel: InferenceChannel) -> None:
        """Use central inference through this channel."""
        self.collector.connect(channel)

    def reset(self) -> None:
        """Start the first episode of every env."""
        self.collector.reset()

    def close(self) -> None:
        """Close the envs."""
        self.collector.close()


@dataclass
class RolloutJob(CollectorJob):
    """Job of one worker. The driver submits calls of its methods, which run in the worker's main thread."""

    sharded: ShardedGradient | None = None
    """Computes shards of a minibatch's gradient; None if the worker computes no gradients."""

    def restore(self, histories: Sequence[History]) -> list[int]:
        """Restore every env from its history; returns the envs that could not be restored and started a new episode."""
        return self.collector.restore(histories)

    def dump(self) -> list[bytes]:
        """Return the envs in their present state, pickled."""
        return self.collector.dump()

    def collect(self, step: int) -> CollectTimes:
        """Fill this worker's columns of the rollout, whose first row is env step `step`."""
        times = self.collector.collect(step)
        return times if self.sharded is None else times._replace(learn_s=self.sharded.busy_s())

    def work(self, shard: int) -> None:
        """Compute one shard of the minibatch's gradient into shared memory."""
        if self.sharded is None:
            raise RuntimeError("work: this worker was built without a gradient")
        self.sharded(shard)

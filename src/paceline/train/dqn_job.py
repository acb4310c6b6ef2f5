"""The job of a worker in DQN: collect transitions into the replay buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.collect.transitions import CollectBudget, TransitionCollector, Written
from paceline.envs.block import History
from paceline.runtime.protocol import InferenceChannel


@dataclass(frozen=True, slots=True)
class DQNJob:
    """Job of one worker. It acts with the published weights, or in the async schedule with a copy of them."""

    collector: TransitionCollector
    groups: slice
    """The worker's groups."""
    renew: Callable[[], object]
    """Updates the weights to act with, before each request."""

    def connect(self, channel: InferenceChannel) -> None:
        """Use central inference through this channel."""
        self.collector.connect(channel)

    def reset(self, heads: Sequence[int]) -> None:
        """Start the first episode of every env. `heads` are the write positions of all groups of the run."""
        self.collector.reset(heads[self.groups])

    def restore(self, histories: Sequence[History], heads: Sequence[int]) -> list[int]:
        """Restore every env from its history; returns the envs that could not be restored and started a new episode."""
        return self.collector.restore(histories, heads[self.groups])

    def collect(self, heads: Sequence[int], budget: CollectBudget) -> Written:
        """Collect, and write rows from these heads (of all groups) on."""
        self.renew()
        return self.collector.collect(heads[self.groups], budget)

    def close(self) -> None:
        """Close the envs."""
        self.collector.close()

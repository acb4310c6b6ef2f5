"""What a worker of DQN does with the driver's calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.collect.transitions import CollectBudget, TransitionCollector, Written
from paceline.envs.block import History
from paceline.runtime.protocol import InferenceChannel


@dataclass(frozen=True, slots=True)
class DQNJob:
    """What a worker does: it plays, with the weights in place, or with a copy that it renews at every order."""

    collector: TransitionCollector
    mine: slice
    """Its groups."""
    renew: Callable[[], object]

    def connect(self, channel: InferenceChannel) -> None:
        """Whom to ask, where the policy is elsewhere."""
        self.collector.connect(channel)

    def reset(self, heads: Sequence[int]) -> None:
        """Begin every env's episode, at these heads, which are those of all groups of the run."""
        self.collector.reset(heads[self.mine])

    def restore(self, histories: Sequence[History], heads: Sequence[int]) -> list[int]:
        """Put every env where it was; returns those that began a new episode."""
        return self.collector.restore(histories, heads[self.mine])

    def collect(self, heads: Sequence[int], budget: CollectBudget) -> Written:
        """Play, and write rows from these heads on."""
        self.renew()
        return self.collector.collect(heads[self.mine], budget)

    def close(self) -> None:
        """Close the envs."""
        self.collector.close()

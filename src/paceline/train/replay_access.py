"""Direct access to a training's replay, for agents: add transitions of one's own, learn without playing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.algos.dqn import DQNLearner


class ReplayCollector(Protocol):
    """What agents use of the collector of a replay."""

    @property
    def stored(self) -> int:
        """Transitions that can be learned from."""

    def add_trajectory(self, transitions: Sequence[Sequence[Any]]) -> None:
        """Write transitions that were collected elsewhere.

        Raises:
            ConfigError: Workers are writing all the time, in the async schedule.
        """


@dataclass(frozen=True, slots=True)
class ReplayAccess:
    """The two ends of a replay."""

    learner: DQNLearner
    collector: ReplayCollector

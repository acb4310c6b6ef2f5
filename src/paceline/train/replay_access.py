"""Direct access to a training's replay, for agents: add transitions of one's own, learn without playing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paceline.algos.dqn import DQNLearner
from paceline.memory.external_transitions import ExternalTransitions


class ReplayCollector(Protocol):
    """What agents use of the collector of a replay."""

    @property
    def stored(self) -> int:
        """Transitions that can be learned from."""

    def add_trajectory(self, transitions: ExternalTransitions) -> None:
        """Write transitions that were collected elsewhere.

        Raises:
            ConfigError: Workers are writing all the time, in the async schedule.
        """


@dataclass(frozen=True, slots=True)
class ReplayAccess:
    """The two ends of a replay."""

    learner: DQNLearner
    collector: ReplayCollector

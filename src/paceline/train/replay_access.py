"""Direct access to the replay buffer, for the Python API: add external transitions, and update without collecting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paceline.algos.dqn import DQNLearner
from paceline.memory.external_transitions import ExternalTransitions


class ReplayCollector(Protocol):
    """The methods of a replay collector that the Python API uses."""

    @property
    def stored(self) -> int:
        """Number of transitions that can be sampled."""

    def add_trajectory(self, transitions: ExternalTransitions) -> None:
        """Write external transitions, which were collected outside of this run.

        Raises:
            ConfigError: With the async schedule, in which workers write to the replay buffer at any time.
        """


@dataclass(frozen=True, slots=True)
class ReplayAccess:
    """The learner, which samples from the replay buffer, and the collector, which fills it."""

    learner: DQNLearner
    collector: ReplayCollector

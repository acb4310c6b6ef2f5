"""Where the time of a worker went."""

from __future__ import annotations

from typing import NamedTuple


class CollectTimes(NamedTuple):
    """Where a worker's rollout went.

    A tuple, not a dataclass: it is what a worker answers, and everybody waits while it is packed and read.
    """

    env_s: float
    inference_s: float
    total_s: float
    learn_s: float = 0.0
    """Computing gradients, since the rollout before."""
    waiting_s: float = 0.0
    """Of `inference_s`, doing nothing until whoever runs the policy had answered."""

    @property
    def busy_s(self) -> float:
        """What the worker itself was at work."""
        return self.env_s + self.inference_s - self.waiting_s + self.learn_s

    def plus(self, other: CollectTimes) -> CollectTimes:
        """Both together."""
        return CollectTimes(
            self.env_s + other.env_s,
            self.inference_s + other.inference_s,
            self.total_s + other.total_s,
            self.learn_s + other.learn_s,
            self.waiting_s + other.waiting_s,
        )

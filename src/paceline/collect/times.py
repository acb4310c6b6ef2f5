"""Timing of a worker's rollout."""

from __future__ import annotations

from operator import add
from typing import NamedTuple


class CollectTimes(NamedTuple):
    """Seconds of one rollout of a worker, by activity.

    A tuple rather than a dataclass because it is the worker's reply: it pickles faster, and the driver waits meanwhile.
    """

    env_s: float
    inference_s: float
    total_s: float
    learn_s: float = 0.0
    """Computing gradients since the previous rollout."""
    waiting_s: float = 0.0
    """The part of `inference_s` spent idle, waiting for a reply of the inference server."""

    def plus(self, other: CollectTimes) -> CollectTimes:
        """The sum of both, field by field."""
        return CollectTimes(*map(add, self, other))

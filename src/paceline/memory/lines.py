"""What a worker and the driver tell each other without a message: one cache line of shared memory per worker."""

from __future__ import annotations

import numpy as np

from paceline.memory.shared import Field

BEAT = 0
"""A counter that the worker moves on: proof of life."""
CLAIM = 1
"""The ticket that the worker is at, plus one; 0 for none."""
STOP = 2
"""Not 0: the worker is to break off what it collects."""


def heartbeat_field(workers: int) -> Field:
    """The lines of all workers, as `heartbeat`."""
    return Field.of("heartbeat", (max(1, workers), 8), np.int64)

"""What a worker and the driver tell each other without a message: one cache line of shared memory per worker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Field

BEAT = 0
"""A counter that the worker moves on: proof of life."""
CLAIM = 1
"""The ticket that the worker is at, plus one; 0 for none."""
STOP = 2
"""Not 0: the worker is to break off what it collects."""
ENV, FIRST, SPAN = 3, 4, 5
"""Which envs are being made, reset or stepped: `SPAN` of them from `FIRST + ENV` on; none if `SPAN` is 0."""
MEMORY = 6
"""The most memory that the worker has had, in kilobytes, as of its last command."""
NOT_FINITE = 7
"""Numbers from envs that are none (`collect.finite`)."""


def own_line() -> NDArray[np.int64]:
    """A line that nobody else looks at, for envs without a worker."""
    return np.zeros(8, np.int64)


def envs_of(line: NDArray[np.int64]) -> str:
    """The envs that a line says are at work, in words; empty if it names none."""
    first, span = int(line[FIRST] + line[ENV]), int(line[SPAN])
    if not span:
        return ""
    return f"env {first}" if span == 1 else f"envs {first}-{first + span - 1}"


def heartbeat_field(workers: int) -> Field:
    """The lines of all workers, as `heartbeat`."""
    return Field.of("heartbeat", (max(1, workers), 8), np.int64)

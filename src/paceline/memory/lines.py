"""What a worker and the driver tell each other without a message: one cache line of shared memory per worker."""

from __future__ import annotations

from typing import TypeAlias

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


Line: TypeAlias = NDArray[np.int64] | None
"""One worker's; None for envs without a worker."""


def spare() -> NDArray[np.int64]:
    """A line of one's own, that no driver looks at."""
    return np.zeros(8, np.int64)


class Marks:
    """Notes in a worker's line which env is at work, so that a hang or a crash has a name.

    Args:
        line: The line; one that nobody looks at, where there is none.
        first: Index in the run of the first env.
    """

    def __init__(self, line: Line, first: int) -> None:
        # A memoryview: to note an env costs 27 nanoseconds, through numpy it would be 51.
        self._line: memoryview = (spare() if line is None else line).data
        self._first = first

    def begin(self) -> memoryview:
        """Envs will be at work, one by one; whoever steps them notes the position of each under `ENV` of the result."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = self._first, 0, 1
        return self._line

    def at(self, i: int, span: int = 1) -> None:
        """Env i is at work, or so many from there on together."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = self._first, i, span

    def join(self, span: int) -> None:
        """The first so many are at work as well: the line names them and those it names already as one range."""
        first, others = self._first, self._line[SPAN]
        end = first + span
        if others:
            at = self._line[FIRST] + self._line[ENV]
            first, end = min(first, at), max(end, at + others)
        self.put(range(first, end))

    def besides(self, span: int) -> range:
        """What the line names besides the first so many: for `put`, when these are done."""
        at = self._line[FIRST] + self._line[ENV]
        end = at + self._line[SPAN]
        above, below = range(max(at, self._first + span), end), range(at, min(end, self._first))
        return range(at, end) if above and below else above or below  # one range, if need be of more than are

    def put(self, envs: range) -> None:
        """These are at work, numbered as in the run."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = envs.start, 0, len(envs)

    def beat(self) -> None:
        """A sign of life."""
        self._line[BEAT] += 1

    def end(self) -> None:
        """None is at work any more."""
        self._line[SPAN] = 0


def envs_of(line: NDArray[np.int64]) -> str:
    """The envs that a line says are at work, in words; empty if it names none."""
    first, span = int(line[FIRST] + line[ENV]), int(line[SPAN])
    if not span:
        return ""
    return f"env {first}" if span == 1 else f"envs {first}-{first + span - 1}"


def heartbeat_field(workers: int) -> Field:
    """The lines of all workers, as `heartbeat`."""
    return Field.of("heartbeat", (max(1, workers), 8), np.int64)

"""Status of each worker in shared memory: heartbeat, claimed work, running env, memory, steps.

worker --writes--> its own line of 16 integers, two cache lines <--reads at any time, without a message-- driver

The driver itself writes `STOP`; the process that started the worker (the driver, or a Ray node) writes `MEMORY`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Field

BEAT = 0
"""Heartbeat counter that the worker increments."""
CLAIM = 1
"""The item of the work queue that the worker has claimed, plus one; 0 for none."""
STOP = 2
"""Set by the driver to a value other than 0 to stop the worker from collecting."""
ENV, FIRST, SPAN = 3, 4, 5
"""Which envs are being made, reset or stepped: `SPAN` envs from `FIRST + ENV` on; no env if `SPAN` is 0."""
MEMORY = 6
"""Memory of the worker (PSS) in kilobytes in the last sample; 0 before the first one."""
NOT_FINITE = 7
"""Number of NaN and infinite values from envs (`collect.finite`)."""
STEPS = 8
"""Steps that the worker has collected since it started; only displayed. Stays 0 on the nodes of a Ray cluster."""
SIZE = 16
"""Integers per line."""


StatusLine: TypeAlias = NDArray[np.int64] | None
"""Status line of one worker; None for envs without a worker."""


def spare() -> NDArray[np.int64]:
    """Return a private line that no driver reads."""
    return np.zeros(SIZE, np.int64)


class WorkerStatus:
    """Records in a worker's status line which env is running, so that a hang or crash can name the env.

    Args:
        line: The status line; None uses a private one that is not read.
        first: Index in the run of the first env.
    """

    def __init__(self, line: StatusLine, first: int) -> None:
        # A memoryview: writing an entry takes 27 nanoseconds, through numpy 51.
        self._line: memoryview = (spare() if line is None else line).data
        self._first = first

    def begin(self) -> memoryview:
        """Start running envs one by one; the caller writes the position of each into entry `ENV` of the result."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = self._first, 0, 1
        return self._line

    def at(self, i: int, span: int = 1) -> None:
        """Record that env i is running, or `span` envs from there on together."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = self._first, i, span

    def each(self, n: int, span: int = 1) -> Iterator[int]:
        """Yield 0 to n - 1: env i (or `span` envs from `i * span` on) is recorded as running until the next one.

        If the loop raises, the line still names the env.
        """
        for i in range(n):
            self.at(i * span, span)
            yield i
            self.beat()
        self.end()

    def join(self, span: int) -> None:
        """Add the first `span` envs: the line then covers them and the envs it already names, as one range."""
        first, others = self._first, self._line[SPAN]
        end = first + span
        if others:
            at = self._line[FIRST] + self._line[ENV]
            first, end = min(first, at), max(end, at + others)
        self.put(range(first, end))

    def besides(self, span: int) -> range:
        """Return the range that the line names without the first `span` envs: for `put`, once these have finished."""
        at = self._line[FIRST] + self._line[ENV]
        end = at + self._line[SPAN]
        above, below = range(max(at, self._first + span), end), range(at, min(end, self._first))
        return range(at, end) if above and below else above or below  # one range, which may cover too many

    def put(self, envs: range) -> None:
        """Record these envs as running, numbered as in the run."""
        self._line[FIRST], self._line[ENV], self._line[SPAN] = envs.start, 0, len(envs)

    def beat(self) -> None:
        """Increment the heartbeat."""
        self._line[BEAT] += 1

    def end(self) -> None:
        """Record that no env is running."""
        self._line[SPAN] = 0


def note_memory(lines: NDArray[np.int64], pids: Sequence[int], memory_mb: Mapping[int, float]) -> None:
    """Write the memory of workers into their lines.

    Args:
        lines: [workers, 16] the lines.
        pids: Process ids, in worker order; those that were not sampled are left out.
        memory_mb: The sample, by process id.
    """
    for line, pid in zip(lines, pids, strict=False):  # on a cluster the driver knows no pids
        if pid in memory_mb:
            line[MEMORY] = round(1024 * memory_mb[pid])


def envs_of(line: NDArray[np.int64]) -> str:
    """Return the envs that a line names as running, as text; empty if none."""
    first, span = int(line[FIRST] + line[ENV]), int(line[SPAN])
    if not span:
        return ""
    return f"env {first}" if span == 1 else f"envs {first}-{first + span - 1}"


def heartbeat_field(workers: int) -> Field:
    """Return the field `heartbeat`, which holds the lines of all workers."""
    return Field.of("heartbeat", (max(1, workers), SIZE), np.int64)

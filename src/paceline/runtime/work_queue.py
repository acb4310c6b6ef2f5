"""Work queue: tasks that any free process may claim, one byte each in a pipe, so that no lock is needed.

    driver --[0 1 2 3]--> work pipe --(one byte each)--> driver, any worker   reading a byte claims the task
           <------------- done pipe <-(the same byte)--- workers

A process that the scheduler has taken off its core claims nothing, so the others do its share instead of waiting. The
driver claims tasks too. A worker spins for the next tasks: while minibatches follow each other, no process sleeps.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from paceline.system.descriptors import close_in_children
from paceline.system.wait_affinity import Waiting

MOST = 127
"""Largest number of tasks in one round of work.

An *entry* in a pipe is one byte, because reads and writes of one byte are atomic: the task, and in the highest bit the
round. The round bit alternates, so that a late entry of the previous round is not taken for one of this round."""

SPIN_S = 0.001
"""How long to spin for more tasks before sleeping. Longer than an optimiser step, so that a worker is awake for the
next minibatch: waking a process takes about a tenth of a millisecond (make bench-round-trip)."""
FIRST_SPIN_S = 0.003
"""Spin time for the first task after a command: longer than it takes to prepare a batch of a small network."""

AVAILABLE = os.name == "posix"
"""Whether pipes can be polled here."""


def wait(
    poll: select.poll, wait_affinity: Waiting, *, spin_s: float = SPIN_S, timeout_s: float | None = None
) -> list[tuple[int, int]]:
    """Block until a descriptor is ready, and return `poll`'s events. Spins first, yielding the core, then sleeps.

    Args:
        poll: The descriptors to wait for.
        wait_affinity: Wait affinity while sleeping.
        spin_s: How long to spin.
        timeout_s: Longest sleep; the result is empty if nothing is ready by then. None sleeps without a timeout: only
            for a worker, which the kernel kills when the driver ends.
    """
    end = perf_counter() + spin_s
    while not (ready := poll.poll(0)) and perf_counter() < end:
        os.sched_yield()
    if ready:
        return ready
    with wait_affinity:
        return poll.poll(None if timeout_s is None else 1000 * timeout_s)


@dataclass(frozen=True, slots=True)
class WorkQueueClient:
    """The worker's side, in the form that is passed to a new process."""

    work: Connection
    done: Connection

    def poll_with(self, fd: int) -> select.poll:
        """Return a poll object for new entries and for `fd`. Create it once: it is used in every minibatch."""
        poll = select.poll()
        poll.register(self.work.fileno(), select.POLLIN)
        poll.register(fd, select.POLLIN)
        return poll

    def take(self) -> int | None:
        """Claim an entry; None if none is left. Never blocks.

        Raises:
            EOFError: The driver has ended.
        """
        try:
            claimed = os.read(self.work.fileno(), 1)
        except BlockingIOError:
            return None
        if not claimed:
            raise EOFError
        return claimed[0]

    def finish(self, entry: int) -> None:
        """Report the task of an entry as done."""
        os.write(self.done.fileno(), bytes((entry,)))


class WorkQueue:
    """The driver's side. The attribute `client` is the workers' side.

    Args:
        context: The multiprocessing context of the workers.
    """

    def __init__(self, context: Any) -> None:
        self._work: Connection
        self._done: Connection
        client_work, self._work = context.Pipe(duplex=False)
        self._done, client_done = context.Pipe(duplex=False)
        for end in (client_work, self._done):
            os.set_blocking(end.fileno(), False)
        close_in_children(self._work, self._done)
        self._round = 0
        self.client = WorkQueueClient(client_work, client_done)

    @property
    def done_fd(self) -> int:
        """Descriptor that becomes readable when a worker has finished a task."""
        return self._done.fileno()

    def take(self) -> int | None:
        """Claim a task for the driver; None if none is left. Never blocks."""
        entry = self.client.take()
        return None if entry is None else entry & MOST

    def put(self, count: int) -> set[int]:
        """Start a round with the tasks 0 to count - 1, at most `MOST`; returns them."""
        self._round ^= MOST + 1
        os.write(self._work.fileno(), bytes(self._round | task for task in range(count)))
        return set(range(count))

    def finished(self) -> set[int]:
        """Return the tasks of this round that workers have finished since the last call. Never blocks."""
        try:
            entries = os.read(self._done.fileno(), MOST)
        except BlockingIOError:
            return set()
        return {entry & MOST for entry in entries if entry & ~MOST == self._round}

    def claimed(self, claim: int) -> int | None:
        """Return the task that a worker's `CLAIM` entry names; None if it names none of this round."""
        entry = claim - 1
        return entry & MOST if claim and entry & ~MOST == self._round else None

    def close(self) -> None:
        """Close all four ends."""
        for end in (self._work, self._done, self.client.work, self.client.done):
            end.close()

"""Work queue: items that any free process may claim, sent as bytes through a pipe and returned through another.

    driver --[0 1 2 3]--> work pipe --(one byte each)--> driver, any worker   reading a byte claims it: no lock
           <------------- done pipe <-(the same byte)--- workers

A process that the scheduler has taken off its core claims nothing, so the others do its share instead of waiting. The
driver claims items too. A worker spins for the next items: while minibatches follow each other, no process sleeps.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from paceline.system.wait_affinity import Waiting

MOST = 127
"""An item is one byte, because reads and writes of one byte are atomic. Its highest bit alternates between rounds of
work, so that a late answer is not taken for one of the next round."""

LINGER_S = 0.001
"""How long to spin for more items before sleeping. Longer than an optimiser step, so that a worker is awake for the
next minibatch: waking a process takes about a tenth of a millisecond (make bench-round-trip)."""
FIRST_LINGER_S = 0.003
"""Spin time for the first item after a command: longer than it takes to prepare a batch of a small network."""

AVAILABLE = os.name == "posix"
"""Whether pipes can be polled here."""


def wait(
    poll: select.poll, wait_affinity: Waiting, *, look_out_s: float = LINGER_S, timeout_s: float | None = None
) -> list[tuple[int, int]]:
    """Return what is ready: spins first, yielding the core to other processes, then sleeps.

    Args:
        poll: What to wait for.
        wait_affinity: Wait affinity while sleeping.
        look_out_s: How long to spin.
        timeout_s: Longest sleep; the result is empty if nothing is ready by then. None sleeps without a timeout: only
            for a worker, which the kernel kills when the driver is gone.
    """
    end = perf_counter() + look_out_s
    while not (ready := poll.poll(0)) and perf_counter() < end:
        os.sched_yield()
    if ready:
        return ready
    with wait_affinity:
        return poll.poll(None if timeout_s is None else 1000 * timeout_s)


@dataclass(frozen=True, slots=True)
class WorkerTickets:
    """The worker's side."""

    work: Connection
    done: Connection

    def poll_with(self, fd: int) -> select.poll:
        """Waits for a ticket or for `fd`. Made once: it is on the path of every minibatch."""
        poll = select.poll()
        poll.register(self.work.fileno(), select.POLLIN)
        poll.register(fd, select.POLLIN)
        return poll

    def take(self) -> int | None:
        """Claim an item; None if none is left. Never blocks.

        Raises:
            EOFError: The driver is gone.
        """
        try:
            claimed = os.read(self.work.fileno(), 1)
        except BlockingIOError:
            return None
        if not claimed:
            raise EOFError
        return claimed[0]

    def finish(self, ticket: int) -> None:
        """Report an item as done."""
        os.write(self.done.fileno(), bytes((ticket,)))


class WorkQueue:
    """The driver's side. The workers' side is passed to every worker.

    Args:
        context: The multiprocessing context of the workers.
    """

    def __init__(self, context: Any) -> None:
        self._work: Connection
        self._done: Connection
        theirs_work, self._work = context.Pipe(duplex=False)
        self._done, theirs_done = context.Pipe(duplex=False)
        for end in (theirs_work, self._done):
            os.set_blocking(end.fileno(), False)
        self._round = 0
        self.theirs = WorkerTickets(theirs_work, theirs_done)

    @property
    def ours(self) -> tuple[Connection, Connection]:
        """The driver's ends, which no worker may hold."""
        return self._work, self._done

    @property
    def done_fd(self) -> int:
        """Readable when something was finished."""
        return self._done.fileno()

    def take(self) -> int | None:
        """Claim an item for the driver itself; None if there is none left."""
        ticket = self.theirs.take()
        return None if ticket is None else ticket & MOST

    def put(self, count: int) -> set[int]:
        """Offer the items 0 to count - 1; returns them."""
        self._round ^= MOST + 1
        os.write(self._work.fileno(), bytes(self._round | item for item in range(count)))
        return set(range(count))

    def finished(self) -> set[int]:
        """The items of this round that were finished since. Never blocks."""
        try:
            work_queue = os.read(self._done.fileno(), MOST)
        except BlockingIOError:
            return set()
        return {ticket & MOST for ticket in work_queue if ticket & ~MOST == self._round}

    def claimed(self, claim: int) -> int | None:
        """The item of this round that a worker's `CLAIM` is for; None if it is for none."""
        ticket = claim - 1
        return ticket & MOST if claim and ticket & ~MOST == self._round else None

    def close(self) -> None:
        """Close everything."""
        for end in (*self.ours, self.theirs.work, self.theirs.done):
            end.close()

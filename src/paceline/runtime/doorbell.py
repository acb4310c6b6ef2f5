"""Doorbell: low-latency wake-ups of workers over shared memory and eventfd, many thousand times per second.

    driver --(payload, counter)--> line in shared memory --> worker    plus a signal, if the worker sleeps
           <-(payload, counter)---                       <--           plus a signal, if the driver sleeps

A call (`runtime.submit`) costs a pickled message each way; a notification costs at most one system call. After
`submit_all(serve)` a worker calls `job.answer(payload)` for each notification, until `rest()`. Requests and results are
in the arena. The payload is for data without a fixed size, and is mostly empty.

`wait` finds a worker that raised, died or hangs in the same way as `runtime.wait`: it watches the pipes, the process
sentinels and the heartbeats all the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter, sleep
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.errors import WorkerDied
from paceline.memory.shared import Arena, Field
from paceline.system.fences import fence, in_order
from paceline.system.wakeups import DescriptorWatch, Signal, descriptor, new_signal

RUNG, DONE, ASLEEP, REST, SENT, REPLIED = range(6)
"""Entries of a line: notifications, answers, whether a signal is needed, whether to stop serving, payload sizes."""
WANTED = 0
"""First entry of the driver's own line: how many workers must be idle before the driver is woken."""

BOX_BYTES = 1 << 20
"""A longer payload is sent through the pipe."""
LINGER_S = 5e-4
"""To be woken takes a tenth of this. Those who look out give way to whoever wants their core."""
SKIP = 15
"""After a look-out in vain so many are left out: where rings are further apart, hardly any time is lost to it."""
LOOK_S = 1.0
"""How often a wait looks at heartbeats, and at least how often it looks for the dead when others are always ready."""


def bell_fields(workers: int) -> list[Field]:
    """Return the arena fields: one cache line per worker and one for the driver, and two payload buffers per worker."""
    boxes = Field.of("letters", (max(1, workers), 2, BOX_BYTES), np.uint8, sparse=True)
    return [Field.of("bells", (max(1, workers) + 1, 8), np.int64), boxes]


class Listening(Protocol):
    """What the doorbell needs of a worker: `WorkerHandle`."""

    conn: Connection

    @property
    def handles(self) -> tuple[int, int]:
        """Objects that become readable when the worker sends a message or ends."""

    def receive(self, command: str) -> Any:
        """Return the worker's reply; raises the error that it reports."""

    def died(self, command: str) -> WorkerDied:
        """Return the error for a worker that is gone."""


@dataclass(frozen=True, slots=True)
class Linger:
    """How long to spin for a new counter value before sleeping, in seconds. Worth it only with idle cores."""

    worker_s: float = 0.0
    """While a worker waits for the next notification."""
    driver_s: float = 0.0
    """While the driver waits for answers."""
    last_s: float = 0.0
    """While the driver waits for the last answer."""

    @classmethod
    def fitting(cls, workers: int, cores: int) -> Linger:
        """Choose spin times for a number of workers and cores.

        With a core to spare for the driver, both sides spin. Without one the driver must not take the core of a worker
        that is still busy. But a worker that has answered only spins, and yields its core to the driver. So the first
        answer wakes the driver, and it is awake for the last one.
        """
        enough = LINGER_S if cores >= workers else 0.0
        return cls(enough, LINGER_S if cores > workers else 0.0, enough)


class LookOut:
    """Spins for a condition before sleeping; skips some rounds after a spin that timed out.

    Args:
        most_s: Longest spin in seconds; 0 disables it.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s, self._skip = most_s, 0

    def due(self) -> bool:
        """Return whether to spin this time; call it once per wait."""
        if self._skip:
            self._skip -= 1
            return False
        return self._most_s > 0.0

    def until(self, there: Callable[[], bool]) -> None:
        """Spin until the condition holds, or until the time is up."""
        end = perf_counter() + self._most_s
        while not there():
            if perf_counter() >= end:
                self._skip = SKIP
                return
            _give_way()


@dataclass(frozen=True, slots=True)
class WorkerBell:
    """A worker's ends, as it is started with them."""

    doorbell: Signal
    done: Signal
    linger_s: float

    def serve(self, conn: Connection, arena: Arena, worker: int, answer: Callable[[bytes], bytes]) -> None:
        """Answer every ring until told to rest, or until a command comes; whoever obeys commands sees to that."""
        lines = arena["bells"]
        everyone, driver = [each.data for each in lines[:-1]], lines[-1].data
        line = everyone[worker]
        inbox, outbox = (box.data for box in arena["letters"][worker])
        watch, look_out = DescriptorWatch([self.doorbell.waitable, conn]), LookOut(self.linger_s)
        while self._rung(line, watch, look_out, conn):
            in_order()
            reply = answer(_read(line[SENT], inbox, conn))
            line[REPLIED] = _write(reply, outbox)
            in_order()
            line[DONE] = line[RUNG]
            fence()
            # Of those that finish, the last that is waited for wakes the driver, and nobody else.
            if driver[ASLEEP] and len(_idle(everyone)) >= driver[WANTED]:
                self.done.set()
            if len(reply) > BOX_BYTES:
                conn.send_bytes(reply)

    def _rung(self, line: memoryview, watch: DescriptorWatch, look_out: LookOut, conn: Connection) -> bool:
        """Wait for the bell; False to stop serving."""
        if line[RUNG] == line[DONE] and look_out.due():
            look_out.until(lambda: line[RUNG] != line[DONE])
        while line[RUNG] == line[DONE]:
            line[ASLEEP] = 1
            fence()
            ready = watch.wait(0.0 if line[RUNG] != line[DONE] else LOOK_S)
            line[ASLEEP] = 0
            self.doorbell.clear()
            # A letter too long for its box comes after its ring; anything else that comes by pipe is a command.
            if line[RUNG] == line[DONE] and conn.fileno() in ready:
                return False
        in_order()
        if line[REST]:
            line[REST], line[DONE] = 0, line[RUNG]
            return False
        return True


class ProcessBells:
    """The driver's ends. One ring per worker may be unanswered.

    Args:
        arena: Holds `bell_fields(workers)`.
        workers: How many.
        linger: How long both sides look out before they sleep.
    """

    def __init__(self, arena: Arena, workers: int, linger: Linger) -> None:
        lines: NDArray[np.int64] = arena["bells"]
        self.notifications = [0] * workers
        """Wake-ups of each worker, `rest` not counted."""
        self.signals = [0] * workers
        """How many of them took a system call."""
        self._lines, self._own = [line.data for line in lines[:-1]], lines[-1].data
        self._boxes = [[box.data for box in boxes] for boxes in arena["letters"]]
        self._doorbells, self._done = [new_signal() for _ in range(workers)], new_signal()
        self._linger, self._look_at = linger, 0.0
        self._look_out, self._look_out_for_last = LookOut(linger.driver_s), LookOut(linger.last_s)
        self._long: dict[int, bytes] = {}  # letters that came by pipe, until they are read
        self._handles: Sequence[Listening] = ()

    def theirs(self, worker: int) -> WorkerBell:
        """What a worker is started with."""
        return WorkerBell(self._doorbells[worker], self._done, self._linger.worker_s)

    def forget(self, worker: int) -> None:
        """It is replaced: the new one has heard nothing."""
        self._lines[worker][:] = np.zeros(8, np.int64).data
        self._long.pop(worker, None)

    def watch(
        self, handles: Sequence[Listening], begin: Callable[[int], None], check: Callable[[list[int], str], None]
    ) -> None:
        """Whom to listen to.

        Args:
            handles: The workers, in order.
            begin: Told when one is rung.
            check: Raises if one of those given has been silent for too long, in the command named.
        """
        self._handles, self._begin, self._check = handles, begin, check
        ends = [end for handle in handles for end in (handle.conn, handle.handles[1])]
        self._watch = DescriptorWatch([self._done.waitable, *ends])
        self._only_done = {descriptor(self._done.waitable)}

    def notify(self, worker: int, payload: bytes = b"") -> None:
        """Have a worker answer. It must have answered before, and nobody may touch what it is to read until it has."""
        line = self._lines[worker]
        line[SENT] = _write(payload, self._boxes[worker][0])
        self._begin(worker)
        self.notifications[worker] += 1
        in_order()
        line[RUNG] += 1
        fence()
        if line[ASLEEP]:
            self.signals[worker] += 1
            self._doorbells[worker].set()
        if len(payload) > BOX_BYTES:
            with suppress(OSError):  # whoever waits for the answer finds out if it is gone
                self._handles[worker].conn.send_bytes(payload)

    def answered(self, workers: Collection[int]) -> list[int]:
        """Those that have answered all their rings."""
        answered = [worker for worker in workers if self._lines[worker][DONE] == self._lines[worker][RUNG]]
        in_order()
        return answered

    def wait(self, workers: Collection[int], *, at_least: int, timeout_s: float, doing: str) -> list[int]:
        """Those that have answered, when so many have, or by then. See `Doorbells.wait`."""
        if len(answered := self.answered(workers)) >= at_least and perf_counter() < self._look_at:
            return answered
        if self._look_out.due():
            self._look_out.until(lambda: len(self.answered(workers)) >= at_least)
        end = perf_counter() + timeout_s
        idle = len(set(_idle(self._lines)).difference(workers))
        early = at_least > 1 and self._look_out_for_last.due()
        while True:
            wanted = at_least - early
            self._own[WANTED], self._own[ASLEEP] = idle + wanted, 1
            fence()
            enough = len(self.answered(workers)) >= wanted
            ready = self._watch.wait(0.0 if enough else max(0.0, min(LOOK_S, end - perf_counter())))
            self._own[ASLEEP] = 0
            if ready:
                self._done.clear()
            if ready != self._only_done:
                self._find_failures(ready, doing)
            answered = self.answered(workers)
            if early and len(answered) >= wanted:
                self._look_out_for_last.until(lambda: len(self.answered(workers)) >= at_least)
                answered, early = self.answered(workers), False
            now = perf_counter()
            if now >= self._look_at:
                self._look_at = now + LOOK_S
                self._check([worker for worker in workers if worker not in answered], doing)
            if len(answered) >= at_least or now >= end:
                return answered

    def payload(self, worker: int) -> bytes:
        """What a worker answered; to be read once, and before it is rung again."""
        if worker in self._long:
            return self._long.pop(worker)
        handle = self._handles[worker]
        try:
            return _read(self._lines[worker][REPLIED], self._boxes[worker][1], handle.conn)
        except (EOFError, OSError):
            raise handle.died("step") from None

    def rest(self) -> None:
        """Have all stop serving: the replies of `serve` are then done."""
        for worker, (line, doorbell) in enumerate(zip(self._lines, self._doorbells, strict=True)):
            self._begin(worker)  # it may have been idle for long
            line[REST] = 1
            in_order()
            line[RUNG] += 1
            doorbell.set()

    def close(self) -> None:
        """Let go of the signals. Idempotent."""
        for signal in (*self._doorbells, self._done):
            signal.close()

    def _find_failures(self, ready: set[int], doing: str) -> None:
        """Raise what a worker says or what ended it. One that has answered by pipe says nothing wrong."""
        for worker, handle in enumerate(self._handles):
            conn, sentinel = handle.handles
            if conn in ready and not self.answered([worker]):
                handle.receive(doing)
            elif conn in ready and worker not in self._long and self._lines[worker][REPLIED] > BOX_BYTES:
                # Taken in at once: left in the pipe, it would wake every further wait.
                with suppress(EOFError, ConnectionResetError):
                    self._long[worker] = handle.conn.recv_bytes()
                    continue
            elif sentinel not in ready:
                continue
            raise handle.died(doing)


def _give_way() -> None:
    """Let whoever else wants this core have it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        sleep(0.0)


def _idle(lines: Sequence[memoryview]) -> list[int]:
    """Workers that have answered all their rings."""
    return [worker for worker, line in enumerate(lines) if line[DONE] == line[RUNG]]


def _write(payload: bytes, box: memoryview) -> int:
    size = len(payload)
    if 0 < size <= BOX_BYTES:
        box[:size] = payload
    return size


def _read(size: int, box: memoryview, conn: Connection) -> bytes:
    if size > BOX_BYTES:
        return conn.recv_bytes()
    return bytes(box[:size]) if size else b""

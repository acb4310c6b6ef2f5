"""Doorbell: low-latency wake-ups of workers over shared memory and eventfd, many thousand times per second.

    driver: payload to buffer, NOTIFIED += 1   --(signal, if the worker sleeps)-->   worker
            reply to buffer, ANSWERED = NOTIFIED   <--(signal, if the driver sleeps)--

A call (`runtime.submit`) costs a pickled message each way; a notification costs at most one system call. After
`submit_all(serve)` a worker calls `job.answer(payload)` for each notification, until `rest()`. Requests and results are
in the arena. The payload is for data without a fixed size, and is usually empty.

`wait` detects a worker that raises, dies or hangs in the same way as `runtime.wait`: it watches the pipes, the process
sentinels and the heartbeats.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paceline.memory.shared import Arena, Field
from paceline.system.fences import fence, in_order
from paceline.system.wakeups import DescriptorWatch, Signal, descriptor, new_signal

if TYPE_CHECKING:
    from paceline.runtime.worker_handle import HangDetector, WorkerHandle

NOTIFIED, ANSWERED, ASLEEP, REST, PAYLOAD_SIZE, REPLY_SIZE = range(6)
"""Entries of a worker's line in shared memory: number of notifications, number of answers, whether the worker sleeps
and needs a signal, whether it shall stop serving, size of the payload, size of the reply."""
WAKE_AT = 0
"""Entry of the driver's line: how many workers must be idle before a worker wakes the driver."""

BUFFER_BYTES = 1 << 20
"""Size of a payload buffer in shared memory; a longer payload is sent through the pipe."""
SPIN_S = 5e-4
"""Longest spin before a process sleeps; a wake-up takes about a tenth of this. A spinning process yields its core."""
SKIPPED_SPINS = 15
"""Spins skipped after one that timed out, so that spinning costs little when notifications are far apart."""
CHECK_S = 1.0
"""How often a wait checks heartbeats, and the longest time between two checks for dead workers."""


def doorbell_fields(workers: int) -> list[Field]:
    """Return the arena fields: one cache line per worker and one for the driver, and two payload buffers per worker."""
    buffers = Field.of("doorbell_buffers", (max(1, workers), 2, BUFFER_BYTES), np.uint8, sparse=True)
    return [Field.of("doorbells", (max(1, workers) + 1, 8), np.int64), buffers]


@dataclass(frozen=True, slots=True)
class SpinTimes:
    """How long to spin for a new counter value before sleeping, in seconds. Pays only if there are idle cores."""

    worker_s: float = 0.0
    """While a worker waits for the next notification."""
    driver_s: float = 0.0
    """While the driver waits for answers."""
    last_s: float = 0.0
    """While the driver waits for the last answer."""

    @classmethod
    def for_cores(cls, workers: int, cores: int) -> SpinTimes:
        """Choose spin times for a number of workers and cores.

        With a core to spare for the driver, both sides spin. Without one, the driver must not take the core of a worker
        that is still busy. A worker that has answered yields its core to the driver while it spins. So the last answer
        but one wakes the driver, which then spins for the last one.
        """
        enough = SPIN_S if cores >= workers else 0.0
        return cls(enough, SPIN_S if cores > workers else 0.0, enough)


class Spinner:
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

    def until(self, condition: Callable[[], bool]) -> None:
        """Spin until the condition holds, or until the time is up."""
        end = perf_counter() + self._most_s
        while not condition():
            if perf_counter() >= end:
                self._skip = SKIPPED_SPINS
                return
            _yield_core()


@dataclass(frozen=True, slots=True)
class WorkerDoorbell:
    """The worker's side, in the form that is passed to a new process."""

    doorbell: Signal
    done: Signal
    spin_s: float

    def serve(self, conn: Connection, arena: Arena, worker: int, answer: Callable[[bytes], bytes]) -> None:
        """Answer every notification until the driver calls `rest` or sends a call, which the caller then reads."""
        lines = arena["doorbells"]
        worker_lines, driver = [each.data for each in lines[:-1]], lines[-1].data
        line = worker_lines[worker]
        inbox, outbox = (buffer.data for buffer in arena["doorbell_buffers"][worker])
        watch, spinner = DescriptorWatch([self.doorbell.waitable, conn]), Spinner(self.spin_s)
        while self._wait_for_notification(line, watch, spinner, conn):
            in_order()
            reply = answer(_read(line[PAYLOAD_SIZE], inbox, conn))
            line[REPLY_SIZE] = _write(reply, outbox)
            in_order()
            line[ANSWERED] = line[NOTIFIED]
            fence()
            # Only the worker whose answer completes the number that the driver waits for wakes the driver.
            if driver[ASLEEP] and len(_idle(worker_lines)) >= driver[WAKE_AT]:
                self.done.set()
            if len(reply) > BUFFER_BYTES:
                conn.send_bytes(reply)

    def _wait_for_notification(
        self, line: memoryview, watch: DescriptorWatch, spinner: Spinner, conn: Connection
    ) -> bool:
        """Block until the next notification; returns False when the worker shall stop serving."""
        if line[NOTIFIED] == line[ANSWERED] and spinner.due():
            spinner.until(lambda: line[NOTIFIED] != line[ANSWERED])
        while line[NOTIFIED] == line[ANSWERED]:
            line[ASLEEP] = 1
            fence()
            ready = watch.wait(0.0 if line[NOTIFIED] != line[ANSWERED] else CHECK_S)
            line[ASLEEP] = 0
            self.doorbell.clear()
            # A payload too long for its buffer comes through the pipe after its notification. Without a notification,
            # a message in the pipe is a call.
            if line[NOTIFIED] == line[ANSWERED] and conn.fileno() in ready:
                return False
        in_order()
        if line[REST]:
            line[REST], line[ANSWERED] = 0, line[NOTIFIED]
            return False
        return True


class DriverDoorbells:
    """The driver's side. Each worker may have one unanswered notification.

    Args:
        arena: Holds `doorbell_fields(workers)`.
        workers: Number of workers.
        spin_times: How long both sides spin before they sleep.
        hang_detector: Measures how long each worker has been silent.
    """

    def __init__(self, arena: Arena, workers: int, spin_times: SpinTimes, hang_detector: HangDetector) -> None:
        lines: NDArray[np.int64] = arena["doorbells"]
        self.notifications = [0] * workers
        """Number of notifications of each worker, without those by `rest`."""
        self._lines, self._own = [line.data for line in lines[:-1]], lines[-1].data
        self._buffers = [[buffer.data for buffer in buffers] for buffers in arena["doorbell_buffers"]]
        self._doorbells, self._done = [new_signal() for _ in range(workers)], new_signal()
        self._spin_times, self._next_check = spin_times, 0.0
        self._spinner, self._last_spinner = Spinner(spin_times.driver_s), Spinner(spin_times.last_s)
        self._long_replies: dict[int, bytes] = {}  # replies that came through the pipe and are not read yet
        self._handles: Sequence[WorkerHandle] = ()
        self._hang_detector = hang_detector

    def worker_end(self, worker: int) -> WorkerDoorbell:
        """Return the worker's side, to be passed to the new process."""
        return WorkerDoorbell(self._doorbells[worker], self._done, self._spin_times.worker_s)

    def forget(self, worker: int) -> None:
        """Reset the line of a worker that is replaced: the new process has seen no notification."""
        self._lines[worker][:] = np.zeros(8, np.int64).data
        self._long_replies.pop(worker, None)

    def watch(self, handles: Sequence[WorkerHandle]) -> None:
        """Set the workers that `wait` listens to, in order; call it after the start and after every replacement."""
        self._handles = handles
        ends = [end for handle in handles for end in (handle.conn, handle.handles[1])]
        self._watch = DescriptorWatch([self._done.waitable, *ends])
        self._only_done = {descriptor(self._done.waitable)}

    def notify(self, worker: int, payload: bytes = b"") -> None:
        """Have a worker call `job.answer(payload)`. Does not block.

        The worker must have answered all earlier notifications. Until it answers this one, the caller must not change
        the data that the worker reads.
        """
        line = self._lines[worker]
        line[PAYLOAD_SIZE] = _write(payload, self._buffers[worker][0])
        self._hang_detector.begin(worker)
        self.notifications[worker] += 1
        in_order()
        line[NOTIFIED] += 1
        fence()
        if line[ASLEEP]:
            self._doorbells[worker].set()
        if len(payload) > BUFFER_BYTES:
            with suppress(OSError):  # if the worker has ended, `wait` raises that
                self._handles[worker].conn.send_bytes(payload)

    def answered(self, workers: Collection[int]) -> list[int]:
        """Return those of these workers that have answered all their notifications. Does not block."""
        answered = [worker for worker in workers if self._lines[worker][ANSWERED] == self._lines[worker][NOTIFIED]]
        in_order()
        return answered

    def wait(self, workers: Collection[int], *, at_least: int, timeout_s: float, doing: str) -> list[int]:
        """Block until `at_least` of these workers have answered all their notifications; returns those that have.

        Args:
            workers: Indices of the workers to wait for.
            at_least: Number of answers to wait for.
            timeout_s: Longest wait; the result may then be shorter than `at_least`.
            doing: Name of the operation, for error texts.

        Raises:
            WorkerError: A worker raised, died or missed its deadline. Then close the runtime, or after `WorkerDied`
                replace the worker by `respawn`; the new worker has no notification.
        """
        if len(answered := self.answered(workers)) >= at_least and perf_counter() < self._next_check:
            return answered
        if self._spinner.due():
            self._spinner.until(lambda: len(self.answered(workers)) >= at_least)
        end = perf_counter() + timeout_s
        idle = len(set(_idle(self._lines)).difference(workers))
        wake_early = at_least > 1 and self._last_spinner.due()
        while True:
            wanted = at_least - wake_early
            self._own[WAKE_AT], self._own[ASLEEP] = idle + wanted, 1
            fence()
            enough = len(self.answered(workers)) >= wanted
            ready = self._watch.wait(0.0 if enough else max(0.0, min(CHECK_S, end - perf_counter())))
            self._own[ASLEEP] = 0
            if ready:
                self._done.clear()
            if ready != self._only_done:
                self._find_failures(ready, doing)
            answered = self.answered(workers)
            if wake_early and len(answered) >= wanted:
                self._last_spinner.until(lambda: len(self.answered(workers)) >= at_least)
                answered, wake_early = self.answered(workers), False
            now = perf_counter()
            if now >= self._next_check:
                self._next_check = now + CHECK_S
                busy = [self._handles[worker] for worker in workers if worker not in answered]
                self._hang_detector.check([(handle, doing) for handle in busy])
            if len(answered) >= at_least or now >= end:
                return answered

    def payload(self, worker: int) -> bytes:
        """Return a worker's reply; call it once per answer, and before the next `notify`."""
        if worker in self._long_replies:
            return self._long_replies.pop(worker)
        handle = self._handles[worker]
        try:
            return _read(self._lines[worker][REPLY_SIZE], self._buffers[worker][1], handle.conn)
        except (EOFError, OSError):
            raise handle.died("step") from None

    def rest(self) -> None:
        """Have all workers stop serving, so that their replies to `serve` become done. All must have answered."""
        for worker, (line, doorbell) in enumerate(zip(self._lines, self._doorbells, strict=True)):
            self._hang_detector.begin(worker)  # its deadline starts now: it may have been idle for long
            line[REST] = 1
            in_order()
            line[NOTIFIED] += 1
            doorbell.set()

    def close(self) -> None:
        """Close the signals. Idempotent."""
        for signal in (*self._doorbells, self._done):
            signal.close()

    def _find_failures(self, ready: set[int], doing: str) -> None:
        """Raise the error of a worker that failed or ended. A long reply in the pipe is stored, and is no failure."""
        for worker, handle in enumerate(self._handles):
            conn, sentinel = handle.handles
            if conn in ready and not self.answered([worker]):
                handle.receive(doing)
            elif conn in ready and worker not in self._long_replies and self._lines[worker][REPLY_SIZE] > BUFFER_BYTES:
                # Read now: left in the pipe, the reply would wake every further wait.
                with suppress(EOFError, ConnectionResetError):
                    self._long_replies[worker] = handle.conn.recv_bytes()
                    continue
            elif sentinel not in ready:
                continue
            raise handle.died(doing)


def _yield_core() -> None:
    """Let another process that is ready to run have this core."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        sleep(0.0)


def _idle(lines: Sequence[memoryview]) -> list[int]:
    """Return the workers that have answered all their notifications."""
    return [worker for worker, line in enumerate(lines) if line[ANSWERED] == line[NOTIFIED]]


def _write(payload: bytes, buffer: memoryview) -> int:
    size = len(payload)
    if 0 < size <= BUFFER_BYTES:
        buffer[:size] = payload
    return size


def _read(size: int, buffer: memoryview, conn: Connection) -> bytes:
    if size > BUFFER_BYTES:
        return conn.recv_bytes()
    return bytes(buffer[:size]) if size else b""

"""Threads that own envs: each env is made, reset, stepped and closed by the same thread.

    job for one thread      through the thread's inbox
    jobs for all threads    by broadcast: one system call wakes all threads, and the last one to finish wakes the caller

If the caller filled one inbox after another, it would hold the GIL while the threads it has already woken wait for it.
In a broadcast the kernel wakes the threads while no thread holds the GIL (docs/adr/0011-threads-for-waiting-envs.md).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeAlias

from paceline.system.one_core import OneCore, roaming
from paceline.system.timer_slack import set_timer_slack

TaskOutcome: TypeAlias = tuple[Any, BaseException | None]
"""(return value, None), or (None, exception) of a call."""
ThreadTask: TypeAlias = Callable[[], None]
"""The job of one thread in a round. It must not raise."""

CAN_BROADCAST = hasattr(os, "eventfd")
"""Whether eventfd exists; without it the caller fills one inbox after another."""
CHECK_EVERY = 64
"""Rounds between two checks of whether the threads may stay bound to one core."""
CLOSE_TIMEOUT_S = 2.0
"""Total time that closing waits for the threads: less than a worker has for its own exit."""


class Team:
    """Threads that own envs, and the calling thread as the last owner.

    Args:
        count: Number of owners, including the caller.
        name: Prefix of the thread names.
        place: Chooses the core to bind the threads to; processes on the same machine should pass different numbers.
    """

    def __init__(self, count: int, name: str, place: int = 0) -> None:
        self.count, self._core = count, OneCore(place)
        self._threads = [_Thread(f"{name}-{number}") for number in range(count - 1)]
        self._round, self._at_gates, self._opened = _Round(0), False, 0
        # Two gates (eventfds) in turn, so that a fast thread cannot pass one of them twice before a slow thread has
        # passed it once. `_at_gates`: the threads wait at the gates, not for their inboxes.
        gates = 2 if CAN_BROADCAST and count > 1 else 0
        self._gates = [os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC) for _ in range(gates)]

    def ask(
        self, owner: int, job: Callable[[], Any], late_s: float | None = None, late: ThreadTask | None = None
    ) -> TaskOutcome:
        """Run a job in the thread of one owner. Blocks until it is done.

        Args:
            owner: Index of the owner.
            job: The job; its exception is part of the outcome.
            late_s: Interval in which to call `late`; None for never.
            late: Called at that interval while the job runs, e.g. to report which env is being waited for.

        Raises:
            TimeoutError: An env of the same thread hangs.
        """
        if owner == self.count - 1:
            return outcome_of(job)
        if self._threads[owner].stuck:
            raise TimeoutError("an env of the same thread hangs; the thread's envs are not closed")
        self.settle()
        answer = self._post(owner, job)
        while True:
            try:
                return answer.get(timeout=late_s)
            except Empty:
                if late is not None:
                    late()

    def all(self, jobs: Sequence[ThreadTask | None]) -> None:
        """Run the jobs of all owners at the same time. Blocks until the slowest is done.

        Args:
            jobs: One job per owner; None for an owner without a job.
        """
        try:
            self.begin(jobs)
            if (own := jobs[-1]) is not None:
                own()
        except BaseException:
            self._core.leave()
            raise
        self.finish()

    def begin(self, jobs: Sequence[ThreadTask | None]) -> None:
        """Start the jobs of all threads, without the caller's own job. Does not block; `finish` waits for them."""
        self.settle()
        if self._gates:
            self._broadcast(jobs)
            return
        busy = [owner for owner, job in enumerate(jobs[:-1]) if job is not None]
        self._round = _Round(self._round.number, jobs, len(busy))
        for owner in busy:
            self._threads[owner].inbox.put(partial(self._round.do, owner))

    def finish(self, late_s: float = -1.0, late: ThreadTask | None = None) -> None:
        """Block until the jobs of the last `begin` are done. Call it once per `begin`.

        Args:
            late_s: Interval in which to call `late`; negative for never.
            late: Called at that interval while the jobs run.
        """
        try:
            while not self._round.wait(late_s):
                if late is not None:
                    late()
        finally:
            self._core.leave()

    def settle(self) -> None:
        """Wait for the threads that still run jobs of a call that was interrupted (Ctrl-C)."""
        if self._round.left > 0:
            if self._gates and self._opened != self._round.number:  # interrupted before the threads were woken
                self._open()
            self._round.wait()

    def look_for_stuck(self) -> None:
        """Mark threads that do not reply within `CLOSE_TIMEOUT_S`: they get no more jobs. Call it before `end`."""
        self._round = _Round(self._round.number)  # do not wait for jobs that still run
        if self._at_gates and self._opened != self._round.number:
            self._open()
            self._at_gates = False
        self._back_to_inboxes(wait=False)
        deadline = perf_counter() + CLOSE_TIMEOUT_S
        for thread, answer in [(thread, self._post(i, lambda: None)) for i, thread in enumerate(self._threads)]:
            try:
                answer.get(timeout=max(0.0, deadline - perf_counter()))
            except Empty:
                thread.stuck = True

    def end(self) -> None:
        """End the threads, whose envs must be closed. The caller runs later jobs itself. May be called twice."""
        self._back_to_inboxes(wait=False)
        self._core.leave()
        for thread in self._threads:
            thread.inbox.put(None)
        for thread in self._threads:
            thread.join(0.0 if thread.stuck else CLOSE_TIMEOUT_S)
        if not any(thread.is_alive() for thread in self._threads):
            for gate in self._gates:
                os.close(gate)
        self._threads, self._gates, self.count = [], [], 1

    def _post(self, owner: int, job: Callable[[], Any]) -> SimpleQueue[TaskOutcome]:
        """Put a job into a thread's inbox; returns the queue that will receive its outcome."""
        self._back_to_inboxes()
        answer: SimpleQueue[TaskOutcome] = SimpleQueue()
        self._threads[owner].inbox.put(lambda: answer.put(outcome_of(partial(roaming, job))))
        return answer

    def _broadcast(self, jobs: Sequence[ThreadTask | None]) -> None:
        """Wake all threads at once, also those without a job: every thread has to pass every gate."""
        if not self._at_gates:
            for owner, thread in enumerate(self._threads):
                thread.inbox.put(partial(self._wait_at_gates, owner, self._round.number))
            self._at_gates = True
        self._round = _Round(self._round.number + 1, jobs, len(self._threads))
        if self._round.number % CHECK_EVERY == 1:
            self._core.look(self._threads)
        self._core.enter()
        self._open()

    def _back_to_inboxes(self, *, wait: bool = True) -> None:
        """Send the threads from the gates back to their inboxes.

        Args:
            wait: Block until all threads are back: a late thread would mistake the gates of the next broadcast for its
                own. False before the end, where threads may hang and no broadcast follows.
        """
        if self._at_gates:
            self._at_gates = False
            self._round = _Round(self._round.number + 1, (), len(self._threads) if wait else 0)
            self._open()
            self.settle()

    def _open(self) -> None:
        os.eventfd_write(self._gates[self._round.number % 2], len(self._threads))
        self._opened = self._round.number

    def _wait_at_gates(self, owner: int, passed: int) -> None:
        """Runs in a thread: do the thread's job each time a gate opens, until a round without jobs.

        Args:
            owner: Index of the thread.
            passed: Number of the last gate that was opened.
        """
        gates = self._gates
        while True:
            passed += 1
            os.read(gates[passed % 2], 8)
            now = self._round
            if now.number != passed:
                continue  # the caller was interrupted, and has sent all threads back since
            if not now.jobs:
                now.count_down()
                return
            now.do(owner)


class _Thread(threading.Thread):
    """Runs the jobs of its inbox until it finds None. A daemon, so that a hanging env does not block process exit."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.stuck = False
        self.start()

    def run(self) -> None:
        """Run jobs until None."""
        set_timer_slack()
        while (job := self.inbox.get()) is not None:
            job()


class _Round:
    """The jobs of all owners for one broadcast, and a count of the threads that are not done.

    Args:
        number: Number of the gate opening that starts the round.
        jobs: One per owner; empty to send the threads back to their inboxes.
        left: Number of threads that the caller waits for.
    """

    __slots__ = ("_all_done", "_count", "jobs", "left", "number")

    def __init__(self, number: int, jobs: Sequence[ThreadTask | None] = (), left: int = 0) -> None:
        self.number, self.jobs, self.left = number, jobs, left
        self._count, self._all_done = threading.Lock(), threading.Lock()
        if self.left:
            self._all_done.acquire()

    def do(self, owner: int) -> None:
        """Runs in a thread: do the owner's job, if it has one; the last thread wakes the caller."""
        try:
            job = self.jobs[owner]
            if job is not None:
                job()
        finally:
            self.count_down()

    def count_down(self) -> None:
        """Runs in a thread: count it as done; the last thread wakes the caller."""
        with self._count:
            self.left -= 1
            last = self.left == 0
        if last:
            self._all_done.release()

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Block until all threads are done or the timeout is over; returns whether they are. Returns True only once."""
        return self._all_done.acquire(timeout=timeout_s)


def outcome_of(job: Callable[[], Any]) -> TaskOutcome:
    """Run a job; returns its result or its exception."""
    try:
        return job(), None
    except BaseException as error:
        return None, error


def result_of(outcome: TaskOutcome) -> Any:
    """Return the result of a job, or raise its exception."""
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]

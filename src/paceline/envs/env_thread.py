"""Threads that own envs: each makes, resets, steps and closes its own envs, and no other thread touches them.

    one thread gets a job           through its inbox
    all threads get a job           by broadcast: one system call wakes all, and the last one done wakes the caller

If the caller filled one inbox after another, it would hold the GIL while the threads it has already woken queue for it.
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
"""A thread's part of a round. It must not raise."""

CAN_MARCH = hasattr(os, "eventfd")
"""Whether eventfd exists; without it the inboxes are used."""
LOOK_EVERY = 64
"""Rounds between two checks of whether the threads may stay bound to one core."""
CLOSE_TIMEOUT_S = 2.0
"""Total time that closing waits for the threads: less than a worker has for its own exit."""


class Team:
    """Owners of envs: the threads, and the caller as the last owner.

    Args:
        count: Owners, the caller among them.
        name: What the threads are called.
        place: A number that neighbours on the same machine do not share, for the core to begin on.
    """

    def __init__(self, count: int, name: str, place: int = 0) -> None:
        self.count, self._core = count, OneCore(place)
        self._threads = [_Thread(f"{name}-{number}") for number in range(count - 1)]
        self._round, self._marching, self._opened = _Round(0), False, 0
        # Two gates in turn, so that a quick thread cannot pass one of them twice before a slow one has passed.
        gates = 2 if CAN_MARCH and count > 1 else 0
        self._gates = [os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC) for _ in range(gates)]

    def ask(
        self, owner: int, job: Callable[[], Any], late_s: float | None = None, late: ThreadTask | None = None
    ) -> TaskOutcome:
        """Have an owner do something, and wait for it; meanwhile call `late` again and again.

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

    def all(self, jobs: Sequence[ThreadTask | None], late_s: float = -1.0, late: ThreadTask | None = None) -> None:
        """Have every owner do its job at the same time; blocks until the slowest is done.

        Args:
            jobs: One for each owner; None for one that has nothing to do.
            late_s: How often to call `late`, which says who is waited for. Negative for never.
            late: Called again and again where others are at their jobs for that long after the caller's own.
        """
        try:
            self.begin(jobs)
            if (own := jobs[-1]) is not None:
                own()
        except BaseException:
            self._core.leave()
            raise
        self.finish(late_s, late)

    def begin(self, jobs: Sequence[ThreadTask | None]) -> None:
        """The first half of `all`, without the caller's own job: returns at once."""
        self.settle()
        if self._gates:
            self._broadcast(jobs)
            return
        busy = [owner for owner, job in enumerate(jobs[:-1]) if job is not None]
        self._round = _Round(self._round.number, jobs, len(busy))
        for owner in busy:
            self._threads[owner].inbox.put(partial(self._round.do, owner))

    def finish(self, late_s: float = -1.0, late: ThreadTask | None = None) -> None:
        """The second half: waits for the others. To be called once for each `begin`."""
        try:
            while not self._round.wait(late_s):
                if late is not None:
                    late()
        finally:
            self._core.leave()

    def settle(self) -> None:
        """After a call that was interrupted: wait for those that are still at it."""
        if self._round.left > 0:
            if self._gates and self._opened != self._round.number:  # interrupted before anybody was woken
                self._open()
            self._round.wait()

    def look_for_stuck(self) -> None:
        """Before the end: threads that do not answer within `CLOSE_TIMEOUT_S` are not asked for anything more."""
        self._round = _Round(self._round.number)  # nobody waits for those that are still at theirs
        if self._marching and self._opened != self._round.number:
            self._open()
            self._marching = False
        self._halt(wait=False)
        deadline = perf_counter() + CLOSE_TIMEOUT_S
        for thread, answer in [(thread, self._post(i, _nothing)) for i, thread in enumerate(self._threads)]:
            try:
                answer.get(timeout=max(0.0, deadline - perf_counter()))
            except Empty:
                thread.stuck = True

    def end(self) -> None:
        """End the threads; their envs are closed. What is asked from now on the caller does. May be called twice."""
        self._halt(wait=False)
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
        """Have a thread do something; where the outcome will be."""
        self._halt()
        answer: SimpleQueue[TaskOutcome] = SimpleQueue()
        self._threads[owner].inbox.put(lambda: answer.put(outcome_of(partial(roaming, job))))
        return answer

    def _broadcast(self, jobs: Sequence[ThreadTask | None]) -> None:
        """Wake all threads for their jobs at once, those without one too: each has to be at the next gate."""
        if not self._marching:
            for owner, thread in enumerate(self._threads):
                thread.inbox.put(partial(self._in_step, owner, self._round.number))
            self._marching = True
        self._round = _Round(self._round.number + 1, jobs, len(self._threads))
        if self._round.number % LOOK_EVERY == 1:
            self._core.look(self._threads)
        self._core.enter()
        self._open()

    def _halt(self, *, wait: bool = True) -> None:
        """Have the threads look into their inboxes again.

        Args:
            wait: Until they do. One that was late would take the next march for the one it is in. Not for the end,
                where some may hang and there is no next one.
        """
        if self._marching:
            self._marching = False
            self._round = _Round(self._round.number + 1, (), len(self._threads) if wait else 0)
            self._open()
            self.settle()

    def _open(self) -> None:
        os.eventfd_write(self._gates[self._round.number % 2], len(self._threads))
        self._opened = self._round.number

    def _in_step(self, owner: int, passed: int) -> None:
        """In a thread: do one's share whenever the gate opens, until there is none."""
        gates = self._gates
        while True:
            passed += 1
            os.read(gates[passed % 2], 8)
            now = self._round
            if now.number != passed:
                continue  # the caller was interrupted, and has had all halt since
            if not now.jobs:
                now.count_down()
                return
            now.do(owner)


class _Thread(threading.Thread):
    """Does what its inbox says until that is None. A daemon: an env that hangs does not keep the process."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.stuck = False
        self.start()

    def run(self) -> None:
        """Serve."""
        set_timer_slack()
        while (job := self.inbox.get()) is not None:
            job()


class _Round:
    """Jobs done at the same time, the caller's last.

    Args:
        number: Counts the times that a gate was opened.
        jobs: One for each owner; none at all sends the threads back to their inboxes.
        left: Threads that the caller waits for.
    """

    __slots__ = ("_all_in", "_count", "jobs", "left", "number")

    def __init__(self, number: int, jobs: Sequence[ThreadTask | None] = (), left: int = 0) -> None:
        self.number, self.jobs, self.left = number, jobs, left
        self._count, self._all_in = threading.Lock(), threading.Lock()
        if self.left:
            self._all_in.acquire()

    def do(self, owner: int) -> None:
        """In a thread: do one's job, if there is one, and wake the caller if it was the last."""
        try:
            job = self.jobs[owner]
            if job is not None:
                job()
        finally:
            self.count_down()

    def count_down(self) -> None:
        """In a thread: be done."""
        with self._count:
            self.left -= 1
            last = self.left == 0
        if last:
            self._all_in.release()

    def wait(self, timeout_s: float = -1.0) -> bool:
        """Until all threads are done, or for so long; whether they are. True once only."""
        return self._all_in.acquire(timeout=timeout_s)


def outcome_of(job: Callable[[], Any]) -> TaskOutcome:
    """What a job returned, or raised."""
    try:
        return job(), None
    except BaseException as error:
        return None, error


def result_of(outcome: TaskOutcome) -> Any:
    """What the job returned; raises what it raised."""
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def _nothing() -> None:
    pass

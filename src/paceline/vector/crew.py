"""Who steps a process's envs: the process itself, or, where envs wait rather than compute, several threads of it.

An env meets one thread only, from its construction to its end (docs/adr/0011-threads-for-waiting-envs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from time import perf_counter
from typing import Any, TypeAlias

from paceline.envs.env_thread import EnvThread, Outcome, outcome_of
from paceline.vector.seat import Seat

CLOSE_TIMEOUT_S = 2.0
"""How long `close` waits for the threads, all together: less than a worker has to end."""

Do: TypeAlias = Callable[[Seat, Any], None]
Job: TypeAlias = tuple[EnvThread | None, Callable[[], None]]
"""Who does it (None: the caller), and what."""


class Crew:
    """Owners of n envs, each of a contiguous range. The last one is the caller.

    Args:
        n: Envs.
        threads: At most this many at once.
        name: What the threads are called.
    """

    def __init__(self, n: int, threads: int, name: str) -> None:
        count = min(threads, n)
        self._threads = [EnvThread(f"{name}-{number}") for number in range(count - 1)]
        self._owner = [i * count // max(1, n) for i in range(n)]
        self._failures: dict[int, BaseException] = {}
        self._for_all: dict[Do, list[Job]] = {}

    def ask(self, at: int, job: Callable[[], Any]) -> Outcome:
        """Have the owner of an env do something, and wait."""
        owner = self._owner[at]
        return self._threads[owner].ask(job) if owner < len(self._threads) else outcome_of(job)

    def each(self, do: Do, seats: Sequence[Seat], given: Sequence[Any]) -> None:
        """Have every owner do something with its seats, at the same time; blocks until the slowest is done.

        Raises:
            Exception: What the first seat raised that did; later seats of the same owner are left as they were.
        """
        if not self._threads:
            for seat, own in zip(seats, given, strict=True):
                do(seat, own)
            return
        for seat, own in zip(seats, given, strict=True):
            seat.given = own
        jobs = self._jobs(do, seats)
        for thread, job in jobs:
            if thread is None:
                job()
            else:
                thread.inbox.put(job)
        # Backwards: who began last mostly ends last, so that the caller wakes up once.
        for thread, _ in reversed(jobs):
            if thread is not None:
                thread.done.get()
        if self._failures:
            failures, self._failures = self._failures, {}
            raise failures[min(failures)]

    def _jobs(self, do: Do, seats: Sequence[Seat]) -> list[Job]:
        """What each owner has to do, the caller last; kept for when all seats do something, so that nobody waits."""
        everyone = len(seats) == len(self._owner)
        if everyone and do in self._for_all:
            return self._for_all[do]
        owners: list[EnvThread | None] = [*self._threads, None]
        shares: list[list[Seat]] = [[] for _ in owners]
        for seat in seats:
            shares[self._owner[seat.at]].append(seat)
        pairs = zip(owners, shares, strict=True)
        jobs: list[Job] = [(owner, partial(self._do_share, do, share, owner)) for owner, share in pairs if share]
        if everyone:
            self._for_all[do] = jobs
        return jobs

    def _do_share(self, do: Do, share: Sequence[Seat], thread: EnvThread | None) -> None:
        try:
            for seat in share:
                try:
                    do(seat, seat.given)
                except BaseException as error:
                    self._failures[seat.at] = error
                    break
        finally:
            if thread is not None:
                thread.done.put(None)

    def close(self, seats: Sequence[Seat]) -> None:
        """Close the envs and end the threads. May be called twice, and while a thread is still stepping."""
        deadline = perf_counter() + CLOSE_TIMEOUT_S
        for thread, answer in [(thread, thread.post(_nothing)) for thread in self._threads]:
            try:
                answer.get(timeout=max(0.0, deadline - perf_counter()))
            except Empty:
                thread.stuck = True
        for seat in seats:
            outcome_of(partial(self.ask, seat.at, seat.env.close))
        for thread in self._threads:
            thread.inbox.put(None)
        for thread in self._threads:
            thread.join(0.0 if thread.stuck else CLOSE_TIMEOUT_S)
        self._threads, self._for_all = [], {}
        self._owner = [0] * len(self._owner)


def _nothing() -> None:
    pass

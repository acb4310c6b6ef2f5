"""Who steps a process's envs: the process itself, or, where envs wait rather than compute, several threads of it.

An env meets one thread only, from its construction to its end (docs/adr/0011-threads-for-waiting-envs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from time import perf_counter
from typing import Any

from paceline.envs.env_thread import EnvThread, Outcome, outcome_of
from paceline.vector.seat import Seat

CLOSE_TIMEOUT_S = 2.0
"""How long `close` waits for the threads, all together: less than a worker has to end."""


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

    def ask(self, at: int, job: Callable[[], Any]) -> Outcome:
        """Have the owner of an env do something, and wait."""
        owner = self._owner[at]
        return self._threads[owner].ask(job) if owner < len(self._threads) else outcome_of(job)

    def each(self, do: Callable[[Seat, Any], None], seats: Sequence[Seat], given: Sequence[Any]) -> None:
        """Have every owner do something with its seats, at the same time; blocks until the slowest is done.

        Raises:
            Exception: What the first seat raised that did; later seats of the same owner are left as they were.
        """
        threads = self._threads
        if not threads:
            for seat, own in zip(seats, given, strict=True):
                do(seat, own)
            return
        shares: list[list[tuple[Seat, Any]]] = [[] for _ in range(len(threads) + 1)]
        for seat, own in zip(seats, given, strict=True):
            shares[self._owner[seat.at]].append((seat, own))
        failures: dict[int, BaseException] = {}
        busy = [thread for thread, share in zip(threads, shares, strict=False) if share]
        for thread, share in zip(threads, shares, strict=False):
            if share:
                thread.inbox.put(partial(_do_share, do, share, failures, thread))
        _do_share(do, shares[-1], failures, None)
        # Backwards: who began last mostly ends last, so that the caller wakes up once.
        for thread in reversed(busy):
            thread.done.get()
        if failures:
            raise failures[min(failures)]

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
        self._threads = []
        self._owner = [0] * len(self._owner)


def _do_share(
    do: Callable[[Seat, Any], None],
    share: Sequence[tuple[Seat, Any]],
    failures: dict[int, BaseException],
    thread: EnvThread | None,
) -> None:
    try:
        for seat, own in share:
            try:
                do(seat, own)
            except BaseException as error:
                failures[seat.at] = error
                break
    finally:
        if thread is not None:
            thread.done.put(None)


def _nothing() -> None:
    pass

"""Threads of one process that step its envs: just the calling thread, or several if env steps wait.

Each env is made, stepped and closed by the same thread (docs/adr/0011-threads-for-waiting-envs.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from paceline.envs.env_thread import TaskOutcome, Team, ThreadTask, outcome_of
from paceline.vector.seat import Seat

Do: TypeAlias = Callable[[Seat, Any], None]


class EnvThreadPool:
    """Threads that own n envs, a contiguous range each. The last thread is the caller's.

    Args:
        n: Number of envs.
        threads: Most threads, including the caller's.
        first: Index of the first env in the vector env.
    """

    def __init__(self, n: int, threads: int, first: int) -> None:
        count = min(threads, n)
        self._team = Team(max(1, count), f"envs-{first}", first // max(1, n))
        self._owner = [i * count // max(1, n) for i in range(n)]
        self._failures: dict[int, BaseException] = {}
        self._for_all: dict[Do, list[ThreadTask | None]] = {}

    def ask(self, at: int, job: Callable[[], Any]) -> TaskOutcome:
        """Run a function in the thread that owns env `at`. Blocks until it is done."""
        return self._team.ask(self._owner[at], job)

    def each(self, do: Do, seats: Sequence[Seat], given: Sequence[Any]) -> None:
        """Call `do(seat, given)` for each env, in parallel over the threads. Blocks until the slowest is done.

        Raises:
            Exception: The error of the failed env with the lowest index. The later envs of its thread are not called.
        """
        if self._team.count == 1:
            for seat, own in zip(seats, given, strict=True):
                do(seat, own)
            return
        for seat, own in zip(seats, given, strict=True):
            seat.given = own
        self._team.all(self._jobs(do, seats))
        if self._failures:
            failures, self._failures = self._failures, {}
            raise failures[min(failures)]

    def _jobs(self, do: Do, seats: Sequence[Seat]) -> list[ThreadTask | None]:
        """The job of each thread; cached for the usual case that all envs are called, to keep it off the hot path."""
        everyone = len(seats) == len(self._owner)
        if everyone and do in self._for_all:
            return self._for_all[do]
        shares: list[list[Seat]] = [[] for _ in range(self._team.count)]
        for seat in seats:
            shares[self._owner[seat.at]].append(seat)
        jobs: list[ThreadTask | None] = [partial(self._do_share, do, share) if share else None for share in shares]
        if everyone:
            self._for_all[do] = jobs
        return jobs

    def _do_share(self, do: Do, share: Sequence[Seat]) -> None:
        for seat in share:
            try:
                do(seat, seat.given)
            except BaseException as error:
                self._failures[seat.at] = error
                break

    def close(self, seats: Sequence[Seat]) -> None:
        """Close the envs and end the threads. May be called twice, and while a thread is still stepping."""
        self._team.look_for_stuck()
        for seat in seats:
            outcome_of(partial(self.ask, seat.at, seat.env.close))
        self._team.end()
        self._owner, self._for_all = [0] * len(self._owner), {}

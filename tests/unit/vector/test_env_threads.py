"""`EnvThreadPool`: each env has one thread, and the error of the lowest env is raised."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.vector.env_threads import EnvThreadPool


def seats(n: int) -> list[Any]:
    closed: list[int] = []
    envs = [SimpleNamespace(close=partial(closed.append, i)) for i in range(n)]
    return [SimpleNamespace(at=i, given=None, seen=[], closed=closed, env=env) for i, env in enumerate(envs)]


@pytest.fixture(params=[1, 3, 8])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = threading.active_count()
    yield request.param
    assert threading.active_count() == before, "all threads have ended"


def test_each_env_is_called_once_and_always_by_its_own_thread(threads: int) -> None:
    pool, all_seats = EnvThreadPool(7, threads, 0), seats(7)

    def do(seat: Any, given: Any) -> None:
        seat.seen.append((given, threading.get_ident()))

    for turn in range(3):
        pool.each(do, all_seats, [10 * turn + i for i in range(7)])
    some = [all_seats[1], all_seats[6]]
    pool.each(do, some, [31, 36])
    owners = [pool.ask(i, threading.get_ident)[0] for i in range(7)]
    for i, seat in enumerate(all_seats):
        assert [given for given, _ in seat.seen] == [i, 10 + i, 20 + i] + ([30 + i] if i in (1, 6) else [])
        assert {ident for _, ident in seat.seen} == {owners[i]}
    assert len(set(owners)) == min(threads, 7)
    assert owners[-1] == threading.get_ident(), "the caller is the last owner"
    pool.close(all_seats)
    assert sorted(all_seats[0].closed) == list(range(7))


def test_the_error_of_the_lowest_env_is_raised_and_later_calls_work(threads: int) -> None:
    pool, all_seats = EnvThreadPool(7, threads, 0), seats(7)

    def fail(seat: Any, given: Any) -> None:
        if given:
            raise ValueError(f"env {seat.at}")

    with pytest.raises(ValueError, match="env 2"):
        pool.each(fail, all_seats, [i in (2, 4, 6) for i in range(7)])
    pool.each(fail, all_seats, [False] * 7)
    value, error = pool.ask(3, lambda: 1 // 0)
    assert value is None
    assert isinstance(error, ZeroDivisionError)
    pool.close(all_seats)

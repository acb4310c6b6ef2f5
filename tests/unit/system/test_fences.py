"""Memory fences between processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from paceline.system import fences


class CountingLock:
    """Counts how often it is acquired and released."""

    def __init__(self) -> None:
        self.acquired = self.released = 0

    def acquire(self) -> None:
        self.acquired += 1

    def release(self) -> None:
        self.released += 1


@pytest.mark.parametrize(("in_order", "pairs"), [(True, 1), (False, 2)])
def test_a_fence_takes_one_lock_pair_on_x86_and_two_elsewhere(
    in_order: bool, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = CountingLock()
    monkeypatch.setattr(fences, "_lock", lock)
    monkeypatch.setattr(fences, "IN_ORDER", in_order)
    fences.fence()
    assert (lock.acquired, lock.released) == (pairs, pairs)


@pytest.mark.parametrize(("in_order", "fences_needed"), [(True, 0), (False, 1)])
def test_ordering_data_needs_a_fence_only_where_the_cpu_reorders(
    in_order: bool, fences_needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(fences, "IN_ORDER", in_order)
    monkeypatch.setattr(fences, "fence", lambda: calls.append(None))
    fences.in_order()
    assert len(calls) == fences_needed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_lock_that_is_held_during_a_fork_does_not_block_the_child() -> None:
    with fences._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # ends a child that would wait for ever
            fences.fence()
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

"""Binding to a core while a process blocks."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from paceline.system import wait_affinity
from paceline.system.wait_affinity import wait_cores, wait_on

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform has no CPU affinity")


class Affinity:
    """The affinity of a process that may use some cores; records every change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: set[int]) -> None:
        self.cores, self.changes = cores, list[set[int]]()
        self.forbidden = False
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(self.cores))
        monkeypatch.setattr(os, "sched_setaffinity", self._set)

    def _set(self, _pid: int, cores: set[int]) -> None:
        if self.forbidden:
            raise PermissionError
        self.cores = set(cores)
        self.changes.append(set(cores))


def test_a_process_is_bound_during_the_wait_and_free_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    affinity = Affinity(monkeypatch, {0, 1, 2})
    with wait_on(2):
        assert affinity.cores == {2}
    assert affinity.cores == {0, 1, 2}


def test_a_wait_that_raises_frees_the_process_too(monkeypatch: pytest.MonkeyPatch) -> None:
    affinity = Affinity(monkeypatch, {0, 1})
    with pytest.raises(KeyboardInterrupt), wait_on(1):
        raise KeyboardInterrupt
    assert affinity.cores == {0, 1}


@pytest.mark.parametrize("cores", [{0, 1}, {5}])
def test_a_core_that_is_not_allowed_or_the_only_one_changes_nothing(
    cores: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    affinity = Affinity(monkeypatch, cores)
    with wait_on(5):
        pass
    assert affinity.changes == []


def test_cores_that_the_user_changes_between_two_waits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    affinity, waiting = Affinity(monkeypatch, {0, 1, 2}), wait_on(1)
    with waiting:
        pass
    affinity.cores = {1, 2}
    with waiting:
        pass
    assert affinity.cores == {1, 2}


def test_a_sandbox_that_forbids_binding_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    affinity = Affinity(monkeypatch, {0, 1})
    affinity.forbidden = True
    with wait_on(1):
        pass
    assert affinity.changes == []


def test_no_core_means_no_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    affinity = Affinity(monkeypatch, {0, 1})
    with wait_on(None):
        pass
    assert affinity.changes == []


@pytest.mark.parametrize(
    ("cores", "budget", "workers", "expected"),
    [
        ([2, 3], 2, 2, [2, 3]),
        ([2, 3], 2, 1, [None]),
        ([2, 3], 2, 3, [None, None, None]),
        ([2, 3], 1, 2, [None, None]),  # the quota allows less than the affinity
        ([4], 1, 1, [None]),
    ],
)
def test_each_worker_has_a_core_only_if_there_are_as_many_workers_as_cores(
    cores: list[int], budget: int, workers: int, expected: Sequence[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_affinity, "affinity", lambda: cores)
    monkeypatch.setattr(wait_affinity, "core_budget", lambda: budget)
    assert list(wait_cores(workers)) == expected

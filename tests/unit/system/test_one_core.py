"""Binding of a team's threads to one core."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.system import one_core
from paceline.system.one_core import OneCore, roaming

pytestmark = pytest.mark.skipif(not one_core.CAN_BIND, reason="this platform has no CPU affinity")
CORES = {0, 1, 2, 3}


class Affinities:
    """Affinity of every thread by native id, as if the machine had four cores."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[int, set[int]] = {}
        self.children = False
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(self.of.get(self._id(pid), CORES)))
        monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: self.of.update({self._id(pid): set(cores)}))
        monkeypatch.setattr(one_core, "_has_children", lambda: self.children)

    @staticmethod
    def _id(pid: int) -> int:
        return pid or threading.get_native_id()

    @property
    def mine(self) -> set[int]:
        return self.of.get(threading.get_native_id(), CORES)


@pytest.fixture
def affinities(monkeypatch: pytest.MonkeyPatch) -> Affinities:
    return Affinities(monkeypatch)


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    stop = threading.Event()
    started = threading.Thread(target=stop.wait)
    started.start()
    yield started
    stop.set()
    started.join()


def of(affinities: Affinities, thread: threading.Thread) -> set[int]:
    return affinities.of.get(thread.native_id or 0, CORES)


def test_a_team_shares_one_core_with_its_caller_until_the_caller_leaves(
    affinities: Affinities, thread: threading.Thread
) -> None:
    core = OneCore(0)
    core.enter()
    assert affinities.mine == CORES, "nothing is bound before the first look"
    core.look([thread])
    assert len(of(affinities, thread)) == 1
    core.enter()
    assert affinities.mine == of(affinities, thread)
    core.leave()
    assert affinities.mine == CORES
    assert len(of(affinities, thread)) == 1, "the team stays there"


def test_teams_take_different_cores(affinities: Affinities, thread: threading.Thread) -> None:
    seen = set()
    for place in range(4):
        OneCore(place).look([thread])
        seen |= of(affinities, thread)
    assert seen == CORES


def test_a_child_process_ends_the_binding_for_good(affinities: Affinities, thread: threading.Thread) -> None:
    core = OneCore(0)
    core.look([thread])
    affinities.children = True
    core.look([thread])
    assert of(affinities, thread) == CORES
    affinities.children = False
    core.look([thread])
    core.enter()
    assert of(affinities, thread) == affinities.mine == CORES


def test_a_caller_of_two_teams_is_free_when_it_has_left_both(affinities: Affinities, thread: threading.Thread) -> None:
    first, second = OneCore(0), OneCore(1)
    for core in (first, second):
        core.look([thread])
        core.enter()
    bound = affinities.mine
    assert len(bound) == 1
    first.leave()
    assert affinities.mine == bound
    second.leave()
    assert affinities.mine == CORES
    second.leave()  # without having entered


def test_one_core_alone_is_never_bound(monkeypatch: pytest.MonkeyPatch, thread: threading.Thread) -> None:
    changes: list[Any] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    monkeypatch.setattr(os, "sched_setaffinity", lambda *args: changes.append(args))
    core = OneCore(0)
    core.look([thread])
    core.enter()
    core.leave()
    assert not changes


def test_what_a_bound_thread_starts_may_run_anywhere(affinities: Affinities, thread: threading.Thread) -> None:
    core = OneCore(0)
    core.look([thread])
    assert roaming(lambda: affinities.mine) == CORES, "a thread that is not bound is left alone"
    core.enter()
    bound = affinities.mine

    def fails(**how: int) -> None:
        assert affinities.mine == CORES
        raise ValueError(how)

    assert roaming(lambda: affinities.mine) == CORES
    assert affinities.mine == bound
    with pytest.raises(ValueError, match="'seed': 3"):
        roaming(fails, seed=3)
    assert affinities.mine == bound, "also after a failure"
    core.leave()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_process_is_noticed_even_after_it_ended() -> None:
    if one_core._has_children():
        pytest.skip("the test process has children of other tests")
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert one_core._has_children()
    os.waitpid(child, 0)
    assert not one_core._has_children()

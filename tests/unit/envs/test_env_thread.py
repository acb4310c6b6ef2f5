"""`Team`: every job of every thread runs exactly once, and no call blocks for ever."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from paceline.envs import env_thread
from paceline.envs.env_thread import TaskOutcome, Team, outcome_of, result_of
from paceline.system.one_core import OneCore

PATIENCE_S = 20.0


def in_time(do: Callable[[], Any]) -> None:
    """Fail, rather than hang, where something waits for ever."""
    outcomes: list[TaskOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(outcome_of(do)), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert outcomes, "a thread waits for ever"
    result_of(outcomes[0])


@pytest.fixture(params=[True, False], ids=["gates", "inboxes"])
def team(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(env_thread, "CAN_BROADCAST", request.param and env_thread.CAN_BROADCAST)
    made = Team(4, "team")
    yield made
    made.look_for_stuck()
    made.end()


def test_owners_without_a_job_are_skipped(team: Team) -> None:
    done: list[int] = []

    def rounds() -> None:
        for number in range(60):
            busy = [owner for owner in range(4) if number % 2 or (number + owner) % 3]
            team.all([partial(done.append, owner) if owner in busy else None for owner in range(4)])
            assert sorted(done) == busy, f"round {number}"
            done.clear()

    in_time(rounds)


@pytest.mark.skipif(not env_thread.CAN_BROADCAST, reason="no gates here")
def test_a_thread_that_is_late_at_its_inbox_does_not_lose_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read

    def late(fd: int, size: int) -> bytes:
        data = read(fd, size)
        if threading.current_thread().name == "team-1":
            time.sleep(0.02)
        return data

    monkeypatch.setattr(os, "read", late)
    team = Team(4, "team")
    done: list[int] = []

    def rounds() -> None:
        for pause_s in (0.0, 0.1, 0.0):
            team.all([partial(done.append, owner) for owner in range(4)])
            assert team.ask(0, lambda: 7) == (7, None)  # team-1 has yet to notice that the march is over
            time.sleep(pause_s)
        assert sorted(done) == sorted(3 * [*range(4)])
        team.end()

    in_time(rounds)


@pytest.mark.skipif(not env_thread.CAN_BROADCAST, reason="no gates here")
def test_a_team_works_after_an_interrupt_before_the_threads_were_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    team, done = Team(3, "team"), list[int]()
    jobs = [partial(done.append, owner) for owner in range(3)]
    team.all(jobs)
    monkeypatch.setattr(OneCore, "enter", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        team.all(jobs)
    monkeypatch.undo()
    in_time(partial(team.all, jobs))
    assert done.count(0) == done.count(1) == 3  # what was begun is done, then what was asked for

    monkeypatch.setattr(OneCore, "enter", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        team.all(jobs)
    threads = list(team._threads)
    team.look_for_stuck()
    team.end()
    assert not any(thread.stuck or thread.is_alive() for thread in threads)


def _interrupt(_core: Any) -> None:
    raise KeyboardInterrupt

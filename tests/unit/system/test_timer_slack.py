"""Timer slack: sleeps end on time."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from paceline.envs.env_thread import Team
from paceline.system.timer_slack import set_timer_slack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has timer slack")


def slack_ns() -> int:
    """Of the calling thread."""
    return int(ctypes.CDLL(None).prctl(30, 0, 0, 0, 0))  # PR_GET_TIMERSLACK


def test_timer_slack_applies_to_this_thread_and_those_it_starts() -> None:
    before, seen = slack_ns(), []

    def outer() -> None:
        set_timer_slack()
        seen.append(slack_ns())
        inner = threading.Thread(target=lambda: seen.append(slack_ns()))
        inner.start()
        inner.join()

    thread = threading.Thread(target=outer)
    thread.start()
    thread.join()
    assert seen == [1, 1]
    assert slack_ns() == before > 1


def test_env_threads_set_their_timer_slack() -> None:
    team = Team(3, "test")
    try:
        assert [team.ask(owner, slack_ns)[0] for owner in range(2)] == [1, 1]
    finally:
        team.end()

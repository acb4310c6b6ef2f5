"""The runtime without workers."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.contract.runtimes import running
from tests.jobs import GROUPS, OneFails, Recorder, TextlessError, fields

from paceline.envs.fault import OddError
from paceline.errors import EnvError, EnvHung
from paceline.memory.shared import Arena
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.protocol import run_all


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", ValueError),
        ("odd", OddError),
        ("env", EnvError),
        ("textless", TextlessError),
        ("sys_exit", SystemExit),
    ],
)
def test_the_exception_of_a_call_is_raised_unchanged(how: str, error: type[BaseException]) -> None:
    with running("inline") as it:
        with pytest.raises(error):
            run_all(it.runtime, Recorder.fail, 0, how)
        assert run_all(it.runtime, Recorder.fail, 1, how) == [None]


def test_calls_are_executed_by_the_wait_in_the_order_of_their_submission() -> None:
    with running("inline") as it:
        first, second, third = (it.runtime.submit(0, Recorder.note, number) for number in (7, 8, 9))
        assert not it.arena["log"].any(), "nothing runs before a wait"
        assert it.runtime.wait([second], all=True) == [second]
        assert (first.result(), second.result()) == (1, 2)
        assert not third.done, "only as many as needed"
        assert it.arena["log"][0, :3].tolist() == [7, 8, 0]


def test_a_wait_for_any_reply_executes_one_call() -> None:
    with running("inline") as it:
        replies = [it.runtime.submit(0, Recorder.note, number) for number in (7, 8)]
        assert it.runtime.wait(replies, all=False) == replies[:1]
        assert it.runtime.wait(replies, all=False) == replies[:1], "one that is done is enough"


def test_this_process_cannot_be_replaced() -> None:
    with running("inline") as it, pytest.raises(RuntimeError, match="worker 0: runs in this process"):
        it.runtime.respawn(0, Recorder.echo)


def test_a_job_with_its_own_policy_cannot_be_connected_to_central_inference() -> None:
    with running("inline") as it:
        runtime: Any = it.runtime
        with pytest.raises(TypeError, match="Recorder: has no `connect`"):
            runtime.connect(object())


def test_a_job_that_hangs_is_interrupted_and_its_watchdog_ends_with_the_runtime() -> None:
    arena, threads = Arena.create(fields(0)), threading.active_count()
    runtime = InlineRuntime(Recorder, arena, GROUPS, timeouts_s=(0.3, 0.3))
    with pytest.raises(EnvHung, match="no sign of life in `fail`"):
        run_all(runtime, Recorder.fail, 0, "sleep")
    runtime.close()
    runtime.close()
    assert threading.active_count() == threads
    assert arena["closed"].tolist() == [1]
    arena.close()


def test_a_job_that_cannot_be_built_leaves_no_watchdog() -> None:
    arena, threads = Arena.create(fields(0)), threading.active_count()
    with pytest.raises(ValueError, match="no job for worker 0"):
        InlineRuntime(OneFails(0), arena, GROUPS, timeouts_s=(60.0, 60.0))
    assert threading.active_count() == threads
    arena.close()

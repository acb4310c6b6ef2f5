"""Pending replies of worker processes: timeouts, deaths and hangs while the driver waits."""

from __future__ import annotations

import os
import signal
import time
from time import perf_counter
from typing import Any

import pytest
from tests.contract.runtimes import WORKERS, results, running, take_all, taken
from tests.jobs import Recorder

from paceline.errors import WorkerDied
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Reply, run_all


def test_a_worker_that_has_answered_is_not_hung_while_others_work() -> None:
    """The driver listens to the last worker, and the first has nothing more to say until then."""
    with running("forkserver", step_timeout_s=1.0) as it:
        run_all(it.runtime, Recorder.echo)
        assert run_all(it.runtime, Recorder.last_takes_its_time, 2.5) == list(range(WORKERS))


def test_a_death_is_raised_while_the_last_worker_still_works() -> None:
    with running("forkserver") as it:
        began = perf_counter()
        replies = it.runtime.submit_all(Recorder.last_takes_its_time, 20.0)
        os.kill(it.runtime.pids()[0], signal.SIGKILL)
        with pytest.raises(WorkerDied, match="worker 0"):
            it.runtime.wait(replies, all=True)
        assert perf_counter() - began < 10.0


def test_a_wait_for_all_returns_the_finished_replies_at_its_timeout() -> None:
    with running("forkserver") as it:
        replies = it.runtime.submit_all(Recorder.last_takes_its_time, 1.0)
        assert it.runtime.wait(replies, all=True, timeout_s=0.3) == replies[:1]
        assert results(it.runtime, replies) == [0, 1]


def test_a_death_is_raised_after_the_results_sent_before_it() -> None:
    with running("forkserver") as it:
        assert isinstance(it.runtime, ProcessRuntime)
        pending: list[Reply[Any]] = [it.runtime.submit(1, Recorder.echo, "alive")]
        assert it.runtime._workers[1].conn.poll(60.0), "sent before the death, in either order of arrival"
        pending.append(it.runtime.submit(0, Recorder.echo, "last words"))
        pending.append(it.runtime.submit(0, Recorder.fail, 0, "kill"))
        pending.append(it.runtime.submit(0, Recorder.echo, "never"))
        answers: list[Any] = []
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            take_all(it.runtime, pending, answers)
        assert sorted(answers) == [(0, ("last words",)), (1, ("alive",))]
        pending.append(it.runtime.submit(0, Recorder.echo, "to the dead"))
        assert it.runtime.respawn(caught.value.worker, Recorder.echo) == ()
        assert [(reply.name, reply.forgotten) for reply in pending] == [("fail", True), ("echo", True), ("echo", True)]
        again = it.runtime.submit(0, Recorder.echo, "again")
        assert taken(it.runtime, [again], 5.0) == [(0, ("again",))], "what the old one had to do is forgotten"


def test_worker_death_is_reported_while_another_worker_keeps_sending() -> None:
    with running("forkserver") as it:
        pending: list[Reply[Any]] = [it.runtime.submit(1, Recorder.fail, 1, "kill")]
        pending += [it.runtime.submit(0, Recorder.echo, number) for number in range(8)]
        time.sleep(0.5)  # all of it is there to be taken, and so is the death
        assert taken(it.runtime, pending, 0.0) == [(0, (0,))]
        with pytest.raises(WorkerDied, match="SIGKILL"):
            taken(it.runtime, pending, 0.0)

"""The driver's side of a worker: exit codes, hang detection and sends to a stopped process."""

from __future__ import annotations

import os
import signal
import time
from time import perf_counter
from typing import Any

import pytest
from tests.contract.runtimes import running, take_all, taken
from tests.jobs import Recorder

from paceline.errors import WorkerDied, WorkerHung
from paceline.runtime.protocol import Reply, run_all
from paceline.runtime.worker_handle import describe_exit


def test_an_idle_worker_is_not_hung() -> None:
    with running("forkserver", step_timeout_s=1.0, start_timeout_s=30.0) as it:
        assert taken(it.runtime, [it.runtime.submit(0, Recorder.beat, 1, 0.0)], 5.0) == [(0, 1)]
        time.sleep(1.5)
        pending: list[Reply[Any]] = [it.runtime.submit(0, Recorder.beat, 2, 0.3)]
        assert taken(it.runtime, pending, 0.1) == []
        assert taken(it.runtime, pending, 5.0) == [(0, 2)]
        pending.append(it.runtime.submit(0, Recorder.fail, 0, "sleep"))
        with pytest.raises(WorkerHung):
            take_all(it.runtime, pending, [])


@pytest.mark.parametrize(
    ("how", "said"), [("exit", "exit code 7"), ("kill", "SIGKILL. Often the kernel's out-of-memory killer")]
)
@pytest.mark.parametrize("kind", ["forkserver", "fork"])
def test_a_worker_that_dies_is_named_with_what_ended_it(kind: str, how: str, said: str) -> None:
    with running(kind) as it:
        pid = it.runtime.pids()[1]
        with pytest.raises(WorkerDied) as caught:
            run_all(it.runtime, Recorder.fail, 1, how)
        assert f"worker 1 (pid {pid}, groups 3-4) ended in `fail`" in str(caught.value)
        assert said in str(caught.value)
        # And the next command says so too, rather than wait for ever.
        with pytest.raises(WorkerDied):
            run_all(it.runtime, Recorder.pid)


def test_a_worker_without_heartbeat_is_killed_and_reported_as_hung() -> None:
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=0.5) as it:
        # Signs of life keep it: three times the limit in all.
        assert run_all(it.runtime, Recorder.beat, 5, 0.3) == [5, 5]
        with pytest.raises(WorkerHung, match=r"worker 1 .*no sign of life in `fail`.*--env-timeout-s"):
            run_all(it.runtime, Recorder.fail, 1, "sleep")
        began = perf_counter()
        it.runtime.close()
        assert perf_counter() - began < 10.0


def test_sending_to_a_stopped_worker_has_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.worker_handle.SEND_TIMEOUT_S", 1)
    with running("forkserver", start_timeout_s=30.0, step_timeout_s=1.0) as it:
        run_all(it.runtime, Recorder.beat, 1, 0.0)
        os.kill(it.runtime.pids()[1], signal.SIGSTOP)
        with pytest.raises(WorkerHung, match=r"worker 1 .*it is stopped, as by SIGSTOP"):
            it.runtime.wait(it.runtime.submit_all(Recorder.echo, bytes(8 << 20)), all=True)
        assert len(it.runtime.respawn(1, Recorder.echo, bytes(8 << 20))[0]) == 8 << 20
        assert run_all(it.runtime, Recorder.share) == [(0, 0, 3), (1, 3, 2)]


def test_the_start_timeout_applies_before_the_first_heartbeat() -> None:
    """Building envs and resetting them for the first time may take longer than a step."""
    with running("forkserver", start_timeout_s=2.0, step_timeout_s=0.1) as it:
        assert run_all(it.runtime, Recorder.slowest_first) == [0, 1]  # 0.2 s without a sign of life
        with pytest.raises(WorkerHung, match="limit 2 s"):
            run_all(it.runtime, Recorder.fail, 0, "sleep")


@pytest.mark.parametrize(
    ("code", "said"), [(-11, "SIGSEGV"), (-9, "out-of-memory"), (7, "exit code 7"), (None, "still runs")]
)
def test_exit_codes_are_described(code: int | None, said: str) -> None:
    assert said in describe_exit(code)

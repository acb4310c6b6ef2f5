"""What runs inside a worker process: scheduling policy, threads and error texts."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.contract.runtimes import WORKERS, running
from tests.jobs import GROUPS, Recorder, fields

from paceline.errors import WorkerError
from paceline.memory.shared import Arena
from paceline.runtime.doorbell import doorbell_fields
from paceline.runtime.inference_requests import InferenceRequests, inference_request_fields
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import run_all, serve
from paceline.runtime.worker import _use_batch_scheduling


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has this policy")
@pytest.mark.parametrize("kind", ["inline", "forkserver", "fork"])
def test_workers_use_batch_scheduling_and_the_driver_keeps_its_policy(kind: str) -> None:
    before = os.sched_getscheduler(0)
    with running(kind) as it:
        policies = run_all(it.runtime, Recorder.scheduler)
        driver = os.sched_getscheduler(0)
    assert driver == before
    if kind == "inline":
        assert policies == [before], "the job runs in the driver's process, whose policy does not change"
    elif before == os.SCHED_OTHER:
        assert policies == [os.SCHED_BATCH] * WORKERS, "a woken worker does not preempt the driver"
    else:
        assert policies == [before] * WORKERS, "a policy that the user has chosen is kept"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "ValueError: nonsense in the job"),
        ("odd", "OddError: odd in the job (code 42)"),
        ("env", "env 3 raised in step 4 with action 1: KeyError: 'x'"),
        ("textless", "TextlessError (its text could not be made)"),
        ("sys_exit", "SystemExit: 3"),
    ],
)
def test_an_error_arrives_with_its_text_and_its_traceback(how: str, said: str) -> None:
    with running("forkserver") as it:
        with pytest.raises(WorkerError) as caught:
            run_all(it.runtime, Recorder.fail, 1, how)
        text = str(caught.value)
        assert said in text
        pid = it.runtime.pids()[1]
        assert f"worker 1 (pid {pid}, groups 3-4) failed in `fail`" in text
        assert "Its traceback:" in text
        assert "in fail" in text
        assert "jobs.py" in text


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has this policy")
@pytest.mark.parametrize("user", ["SCHED_OTHER", "SCHED_IDLE"])
def test_a_scheduling_policy_that_the_user_has_chosen_is_kept(user: str) -> None:
    chosen = getattr(os, user)
    child = os.fork()
    if child == 0:
        os.sched_setscheduler(0, chosen, os.sched_param(0))
        _use_batch_scheduling()
        os._exit(os.sched_getscheduler(0))
    expected = os.SCHED_BATCH if chosen == os.SCHED_OTHER else chosen
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == expected


def test_a_job_without_answer_cannot_be_woken_by_a_doorbell() -> None:
    arena = Arena.create([*fields(1), *doorbell_fields(1)])
    runtime: Any = ProcessRuntime(Recorder, arena, GROUPS, 1, start_method="fork", doorbells=True)
    try:
        with pytest.raises(WorkerError, match="Recorder: has no `answer`, and cannot be woken by a doorbell"):
            run_all(runtime, serve)
    finally:
        runtime.close()
        arena.close()


def test_a_job_without_connect_cannot_use_central_inference() -> None:
    arena = Arena.create([*fields(1), *inference_request_fields(1, 1, 1)])
    requests = InferenceRequests(arena)
    try:
        with pytest.raises(WorkerError, match="Recorder: has no `connect`, and cannot use central inference"):
            ProcessRuntime(Recorder, arena, GROUPS, 1, start_method="fork", inference_requests=requests)
    finally:
        requests.close()
        arena.close()

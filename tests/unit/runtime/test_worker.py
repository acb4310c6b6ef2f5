"""What runs inside a worker process: scheduling policy, threads and error texts."""

from __future__ import annotations

import os

import pytest
from tests.contract.runtimes import WORKERS, running
from tests.jobs import Recorder

from paceline.errors import WorkerError
from paceline.runtime.protocol import run_all


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

"""What runs inside a worker process: build the job, execute calls, report failures as text.

    driver --(call, args)-----> worker        one small message each way per call; the data is in the arena
           <--(ok, result)-----
           <--(error, text)----               the call raised an exception, which comes along if it can be pickled
           <--(exit, text)-----               the env raised SystemExit; the worker then ends
           --(task)-----------> any worker    one task of `work`, claimed by the first free worker (`work_queue`)
           --(notification)---> worker        answered by `job.answer` while the worker serves (`doorbell`)

A worker ends when its driver ends. An idle worker notices that the pipe is closed. A busy worker, even inside C code
that holds the GIL, is killed by the kernel, because a second pipe closes whose write end only the driver has open. The
kernel then also kills what its envs have started, since each worker leads a process group of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paceline.errors import PacelineError
from paceline.memory.shared import Arena
from paceline.memory.worker_status import CLAIM
from paceline.runtime.doorbell import WorkerDoorbell
from paceline.runtime.forkserver import ignore_interrupts
from paceline.runtime.inference_requests import InferenceRequester
from paceline.runtime.messages import MessageKind, error_text, packed_exception, packed_result, receive_call
from paceline.runtime.protocol import CentralInferenceJob, DoorbellJob, GradientJob, Job, Program, Share, serve
from paceline.runtime.stacks import StackFile
from paceline.runtime.work_queue import FIRST_SPIN_S, MOST, SPIN_S, WorkQueueClient, wait
from paceline.system import threads
from paceline.system.descendants import lead_group
from paceline.system.die_with_parent import die_with_parent
from paceline.system.malloc import keep_freed_memory
from paceline.system.timer_slack import set_timer_slack
from paceline.system.wait_affinity import Waiting, wait_on


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSetup:
    """What a worker is to do, and with which means; passed to its new process."""

    share: Share
    """Groups of the worker."""
    mark: str
    """Identifies the processes that the worker's envs start (`system.descendants`)."""
    program: bytes
    """A `Program`, pickled by cloudpickle, which also accepts lambdas and classes of the user's script."""
    arena: Arena
    work_queue: WorkQueueClient | None
    """The worker's side of the work queue; None if the worker computes no tasks."""
    doorbell: WorkerDoorbell | None
    """The worker's side of the doorbell."""
    inference: Callable[[Arena, int], InferenceRequester] | None
    """Opens the worker's side of central inference: see `InferenceRequests.worker_end`."""
    core: int | None
    """Core to stay on, if workers are pinned."""
    wait_on: int | None
    """Core to be bound to while the worker blocks, if there is one worker per core."""


def worker_main(setup: WorkerSetup, conn: Connection, guard: Connection, stacks: StackFile | None) -> None:
    """Entry point of a worker process.

    Args:
        setup: What the worker is to do.
        conn: Receives calls and sends results.
        guard: Closes if the driver ends.
        stacks: File for stack traces; None on platforms without it.
    """
    # The driver handles Ctrl-C, and a SIGTERM to the process group. A handler instead of SIG_IGN for SIGTERM, because
    # programs that an env starts would inherit SIG_IGN.
    ignore_interrupts()
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    lead_group(setup.mark)
    die_with_parent(guard.fileno(), whole_group=True)
    if stacks is not None:
        stacks.listen()
    # Workers are daemons, so that a driver that forgets `close` does not wait for them at its exit. The worker clears
    # the flag, because daemons may not start processes and envs may want to.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    set_title(f"paceline: worker {setup.share.worker}")
    if setup.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {setup.core})
    threads.limit(1)
    keep_freed_memory()
    _use_batch_scheduling()
    set_timer_slack()
    job: Job | None = None
    try:
        program: Program[Job] = cloudpickle.loads(setup.program)
        job = program(setup.arena, setup.share)
        if setup.inference is not None:
            if not isinstance(job, CentralInferenceJob):
                raise _missing_method(job, "connect", "use central inference")
            job.connect(setup.inference(setup.arena, setup.share.worker))
        conn.send_bytes(packed_result("ok", None))
        _execute_calls(setup, conn, job)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the driver has ended, so this process ends too
    except SystemExit as error:
        _send_failure(conn, error, "exit")  # the env called sys.exit, so this process ends
    except BaseException as error:
        _send_failure(conn, error)
    finally:
        if job is not None:
            with contextlib.suppress(Exception):
                job.close()


def _use_batch_scheduling() -> None:
    """Set SCHED_BATCH, so that a worker that is woken does not preempt the driver, which has other workers to wake.

    Otherwise, if the worker is woken on the driver's core, the other workers wait for one time slice, about 3 ms.
    Processes that an env starts inherit the policy. A policy that the user has set (`chrt`) is kept.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # a sandbox may forbid it; it only affects speed
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _missing_method(job: Job, method: str, use: str) -> TypeError:
    return TypeError(f"{type(job).__name__}: has no `{method}`, and cannot {use}.")


def _execute_calls(setup: WorkerSetup, conn: Connection, job: Job) -> None:
    """Execute calls, and tasks of `work`, until the driver sends `CLOSE`."""
    line, wait_affinity = setup.arena["heartbeat"][setup.share.worker], wait_on(setup.wait_on)
    # A long spin only on a core that no other process uses.
    spin_s = 0.0 if setup.wait_on is None else FIRST_SPIN_S
    compute = job.work if isinstance(job, GradientJob) else None
    while True:
        if setup.work_queue is not None:
            _work(setup.work_queue, conn.fileno(), compute, line, wait_affinity, spin_s)
            message = receive_call(conn)
        else:
            # No timeout: if the driver ends, the pipe closes and the kernel kills this process.
            with wait_affinity:
                message = receive_call(conn)
        if message is None:
            return
        call, args, kwargs = message
        if call is serve and setup.doorbell is not None:
            if not isinstance(job, DoorbellJob):
                raise _missing_method(job, "answer", "be woken by a doorbell")
            setup.doorbell.serve(conn, setup.arena, setup.share.worker, job.answer)
            result = None
        else:
            result = call(job, *args, **kwargs)
        conn.send_bytes(packed_result("ok", result))


def _work(
    work_queue: WorkQueueClient,
    conn: int,
    compute: Callable[[int], None] | None,
    line: NDArray[np.int64],
    wait_affinity: Waiting,
    spin_s: float,
) -> None:
    """Compute tasks of `work` until a call arrives; the caller then reads it."""
    poll = work_queue.poll_with(conn)
    while all(fd != conn for fd, _ in wait(poll, wait_affinity, spin_s=spin_s)):
        while (entry := work_queue.take()) is not None:
            line[CLAIM] = entry + 1
            if compute is None:
                raise TypeError("this job has no `work`, and cannot compute gradients.")
            compute(entry & MOST)
            # In this order, so that a task that is neither claimed nor reported as done is never about to be reported.
            work_queue.finish(entry)
            line[CLAIM] = 0
        spin_s = SPIN_S


def _send_failure(conn: Connection, error: BaseException, kind: MessageKind = "error") -> None:
    """Send the error as text, and the exception behind it (of the env, for example) if it survives pickling."""
    with contextlib.suppress(OSError):
        origin = error.__cause__ if isinstance(error, PacelineError) else error
        conn.send_bytes(packed_result(kind, (error_text(error), traceback.format_exc(), packed_exception(origin))))


def set_title(title: str) -> None:
    """Name the process for ps, htop and pstree."""
    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.setproctitle(title)

"""What runs inside a worker process: build the job, execute calls, report failures as text.

    driver --(call, args)-----> worker        one small message each way per call; the data is in the arena
           <--(ok, result)-----
           <--(error, text)----    or (exit, text) where it ends because the env says so
           --(ticket)---------> any worker    pieces of work that whoever is free may claim (`tickets`)
           --(ring)-----------> worker        answered by `job.answer` while it serves (`doorbells`)

A worker that loses its driver ends: the pipe closes when it is idle, and a second pipe whose write end only the
driver holds makes the kernel kill it when it is busy, even inside C code that keeps the GIL.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paceline.errors import PacelineError
from paceline.memory.shared import Arena
from paceline.memory.worker_status import CLAIM, MEMORY
from paceline.runtime.doorbell import WorkerBell
from paceline.runtime.forkserver import ignore_interrupts
from paceline.runtime.inference_requests import WorkerQuestions
from paceline.runtime.messages import MessageKind, hear_call, packed_result
from paceline.runtime.protocol import CentralInferenceJob, DoorbellJob, GradientJob, Job, Program, Share, serve
from paceline.runtime.stacks import StackFile
from paceline.runtime.work_queue import FIRST_LINGER_S, LINGER_S, MOST, WorkerTickets, wait
from paceline.system import threads
from paceline.system.die_with_parent import die_with_parent
from paceline.system.malloc import keep_freed_memory
from paceline.system.timer_slack import set_timer_slack
from paceline.system.wait_affinity import Waiting, wait_on

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """All that a worker is started with."""

    share: Share
    program: bytes
    """A cloudpickled `Program`, so that lambdas and classes of the user's script travel too."""
    arena: Arena
    conn: Connection
    guard: Connection
    work_queue: WorkerTickets | None
    doorbell: WorkerBell | None = None
    inference_requests: WorkerQuestions | None = None
    core: int | None = None
    """Core to stay on, where pinning was asked for."""
    wait_on: int | None = None
    """Core to wait on, where each worker has one."""
    stacks: StackFile | None = None
    """Where a crash leaves a trace."""


def worker_main(order: WorkerOrder) -> None:
    """Entry point of a worker process."""
    # Ctrl-C, and a SIGTERM to the whole group, are the driver's business. Not SIG_IGN for the latter: programs
    # that an env starts would inherit that.
    ignore_interrupts()
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    die_with_parent(order.guard.fileno())
    if order.stacks is not None:
        order.stacks.listen()
    # Workers are daemons so that a driver which forgets them does not wait at its exit; envs may start
    # processes of their own all the same.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    set_title(f"paceline: worker {order.share.worker}")
    if order.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {order.core})
    threads.limit(1)
    keep_freed_memory()
    _wait_for_turn()
    set_timer_slack()
    job: Job | None = None
    try:
        program: Program[Job] = cloudpickle.loads(order.program)
        job = program(order.arena, order.share)
        if order.inference_requests is not None:
            if not isinstance(job, CentralInferenceJob):
                raise _lacks(job, "connect", "use central inference")
            job.connect(order.inference_requests.open(order.arena, order.share.worker))
        order.conn.send_bytes(packed_result("ok", None))
        _obey(order, job)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # The driver is gone; so are we.
    except SystemExit as error:
        _send_failure(order.conn, error, "exit")  # the env meant to end this process, and it does
    except BaseException as error:
        _send_failure(order.conn, error)
    finally:
        if job is not None:
            with contextlib.suppress(Exception):
                job.close()


def _wait_for_turn() -> None:
    """When woken, have whoever woke this worker go on first: usually a driver with others still to wake.

    On its core, a worker that began at once would keep the others waiting for a slice of the scheduler's, about 3 ms.
    What an env starts is scheduled in the same way. Whoever chose a way for this run (`chrt`) keeps it.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # a sandbox may forbid it, and it is only for speed
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _lacks(job: Job, method: str, use: str) -> TypeError:
    return TypeError(f"{type(job).__name__}: has no `{method}`, and cannot {use}.")


def _obey(order: WorkerOrder, job: Job) -> None:
    """Execute what comes, until told to end: calls for this worker, and items of work that any free worker takes."""
    conn, line, wait_affinity = order.conn, order.arena["heartbeat"][order.share.worker], wait_on(order.wait_on)
    compute = job.work if isinstance(job, GradientJob) else None
    while True:
        if order.work_queue is not None:
            _work(order, order.work_queue, compute, line, wait_affinity)
            message = hear_call(conn)
        else:
            # Without a time-out: the kernel ends this process when the driver is gone, and the pipes do too.
            with wait_affinity:
                message = hear_call(conn)
        if message is None:
            return
        call, args, kwargs = message
        if call is serve and order.doorbell is not None:
            if not isinstance(job, DoorbellJob):
                raise _lacks(job, "answer", "be woken by a bell")
            order.doorbell.serve(conn, order.arena, order.share.worker, job.answer)
            result = None
        else:
            result = call(job, *args, **kwargs)
        line[MEMORY] = _peak_kb()
        conn.send_bytes(packed_result("ok", result))


def _work(
    order: WorkerOrder,
    work_queue: WorkerTickets,
    compute: Callable[[int], None] | None,
    line: NDArray[np.int64],
    wait_affinity: Waiting,
) -> None:
    """Compute items of work until a call is there."""
    conn = order.conn.fileno()
    poll = work_queue.poll_with(conn)
    look_out_s = 0.0 if order.wait_on is None else FIRST_LINGER_S  # only a core of one's own may be kept awake so long
    while all(fd != conn for fd, _ in wait(poll, wait_affinity, look_out_s=look_out_s)):
        while (ticket := work_queue.take()) is not None:
            line[CLAIM] = ticket + 1
            if compute is None:
                raise TypeError("this job has no `work`, and cannot compute gradients.")
            compute(ticket & MOST)
            # In this order: of what nobody is at, and nobody has said that it is done, nobody may be about to say so.
            work_queue.finish(ticket)
            line[CLAIM] = 0
        look_out_s = LINGER_S


def _peak_kb() -> int:
    """The most memory this process has had; a microsecond."""
    if sys.platform == "win32":
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def _send_failure(conn: Connection, error: BaseException, kind: MessageKind = "error") -> None:
    """Send text, never the exception itself: it may not pickle, or may not unpickle."""
    try:
        what = str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
    except Exception:
        what = f"{type(error).__name__} (its text could not be made)"
    with contextlib.suppress(OSError):
        conn.send_bytes(packed_result(kind, (what, traceback.format_exc())))


def set_title(title: str) -> None:
    """Name the process for ps, htop and pstree."""
    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.setproctitle(title)

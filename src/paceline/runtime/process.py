"""Runtime with worker processes on this machine.

    driver ──socketpair── worker 0: groups 0..3 ─┐
           ──socketpair── worker 1: groups 4..7 ─┴─ arena (mapped by all)

1. The driver starts the workers; each builds its job and reports that it has started.
2. The driver sends calls through the socketpairs; each worker executes its calls in order and sends the results.
3. The driver distributes tasks of `work` through one pipe that all workers read (`work_queue`).
4. While it waits, the driver watches the socketpairs, the process sentinels and the heartbeats, so that a worker that
   fails, dies or hangs is always reported.
"""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import select
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from time import perf_counter
from typing import Concatenate, Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.errors import WorkerDied, WorkerError, WorkerHung, WorkerLost
from paceline.memory.shared import Arena
from paceline.memory.worker_status import BEAT, CLAIM, STOP
from paceline.runtime import work_queue
from paceline.runtime.doorbell import DriverDoorbells, SpinTimes
from paceline.runtime.forkserver import StartMethod, child_environment, default_start_method, start_fork_server
from paceline.runtime.inference_requests import InferenceRequests
from paceline.runtime.messages import CLOSE, packed_call
from paceline.runtime.pickled_program import pack
from paceline.runtime.protocol import GradientJob, J, Job, P, Program, R, Reply, Share, check_not_forgotten, shares
from paceline.runtime.replies import POLL_S, PendingReplies
from paceline.runtime.worker import WorkerSetup
from paceline.runtime.worker_handle import HangDetector, WorkerHandle
from paceline.system import threads
from paceline.system.descendants import kill_marked, new_mark
from paceline.system.wait_affinity import wait_cores, wait_on

CLOSE_TIMEOUT_S = 5.0
"""How long `close` may take; half of it for the workers to end by themselves."""
GRACE_S = 1.0
"""After a worker has died: how long to wait for its unclaimed tasks before the driver computes them itself. Much longer
than a task takes."""


class ProcessRuntime(Generic[J]):
    """W worker processes, each with one job over its share of the groups."""

    bytes_up = 0

    def __init__(
        self,
        program: Program[J],
        arena: Arena,
        groups: int,
        num_workers: int,
        *,
        first_group: int = 0,
        start_method: StartMethod | None = None,
        preload: Sequence[str] = (),
        cores: list[int] | None = None,
        take_turns: bool = False,
        start_timeout_s: float = 120.0,
        step_timeout_s: float = 60.0,
        local_gradient: Callable[[int], None] | None = None,
        doorbells: bool = False,
        unit: str = "groups",
        inference_requests: InferenceRequests | None = None,
        respawns: bool = False,
    ) -> None:
        """Start the workers and wait until each has built its job.

        Args:
            program: Builds a worker's job.
            arena: Shared memory with `heartbeat_field(num_workers)`, and `doorbell_fields(num_workers)` for doorbells.
            groups: Number of groups, which are divided among the workers.
            num_workers: Processes to start.
            first_group: Number of the first group: not 0 on a cluster node that has only some of the groups.
            start_method: Start method of the processes; None for the platform's default.
            preload: Modules that the fork server imports once for all workers; a worker then starts in about 10 ms.
            cores: Cores to pin workers to, round-robin.
            take_turns: Whether driver and workers never compute at the same time; each process is then bound to a
                core while it blocks (`system.wait_affinity`).
            start_timeout_s: How long building a job, and then its first heartbeat, may take.
            step_timeout_s: How long a worker may go without a further heartbeat.
            local_gradient: Computes a task of `work` in the driver; None leaves all tasks to the workers.
            doorbells: Whether workers can execute `serve` and be woken by the property `doorbells`.
            unit: What error texts call groups (plural).
            inference_requests: Central inference: connects every job, which must be a `CentralInferenceJob`.
            respawns: Whether the caller replaces lost workers. A worker that is lost while it starts is then reported
                by the first `wait`, and not by this constructor.

        Raises:
            ConfigError: The program cannot be pickled.
            WorkerError: A worker could not build its job.
        """
        self.num_workers, self._driver = num_workers, os.getpid()
        self._step_timeout_s = step_timeout_s
        self._lines: NDArray[np.int64] = arena["heartbeat"]
        self._hang_detector = HangDetector(self._lines[:, BEAT], start_timeout_s, step_timeout_s)
        self._workers, self._local_gradient = list[WorkerHandle](), local_gradient
        self._work_queue: work_queue.WorkQueue | None = None
        self._doorbells: DriverDoorbells | None = None
        self._closed, self._unit, self._inference_requests = False, unit, inference_requests
        self._affinity_scope = ExitStack()
        self._pending = PendingReplies(self._workers, self._hang_detector, num_workers)
        self._method = start_method or default_start_method()
        self._packed, self._arena, self._cores = pack(program), arena, cores
        self._wait_cores = wait_cores(num_workers) if take_turns and cores is None else [None] * num_workers
        self._wait_affinity = wait_on(self._wait_cores[-1])
        # With `local_gradient` the driver computes too, so one worker less keeps every core busy.
        self._computing_workers = num_workers if local_gradient is None else max(1, threads.core_budget() - 1)
        _OPEN.add(self)
        try:
            if self._method == "forkserver":
                start_fork_server(preload)
            elif self._method == "spawn" and os.name == "posix":
                resource_tracker.ensure_running()  # inside `child_environment` its start would unblock Ctrl-C
            if doorbells:
                self._doorbells = DriverDoorbells(
                    arena,
                    num_workers,
                    SpinTimes.for_cores(num_workers, threads.core_budget()),
                    self._hang_detector,
                )
            if work_queue.AVAILABLE:
                self._work_queue = work_queue.WorkQueue(multiprocessing.get_context(self._method))
            for share in shares(groups, num_workers, first_group):
                self._workers.append(
                    self._new(replace(share, helps=not self._work_queue or share.worker < self._computing_workers))
                )
            self._await_start(respawns)
            self._watch()
        except BaseException:
            self.close()
            raise

    def _new(self, share: Share) -> WorkerHandle:
        """Start the process of one worker. Does not wait until it has built its job."""
        worker, requests = share.worker, self._inference_requests
        with child_environment():
            setup = WorkerSetup(
                share=share,
                mark=new_mark(),
                program=self._packed,
                arena=self._arena,
                work_queue=self._work_queue.client if self._work_queue and share.helps else None,
                doorbell=self._doorbells.worker_end(worker) if self._doorbells else None,
                inference=requests.worker_end(worker) if requests else None,
                core=self._cores[worker % len(self._cores)] if self._cores else None,
                wait_on=self._wait_cores[worker],
            )
            return WorkerHandle(self._method, setup, self._unit)

    def _await_start(self, respawns: bool) -> None:
        starting = [self._expect_start(worker) for worker in range(self.num_workers)]
        while starting:
            try:
                self._pending.wait_all(starting, math.inf)
                return
            except WorkerLost as loss:
                if not respawns:
                    raise
                self._pending.store_loss(loss)
                self._pending.forget(loss.worker)
                starting = [reply for reply in starting if reply.worker != loss.worker]

    def _expect_start(self, worker: int) -> Reply[None]:
        """Expect the reply that a new worker sends, without a call, when it has built its job."""
        reply: Reply[None] = Reply(worker, "start")
        self._pending.add(reply)
        return reply

    @property
    def doorbells(self) -> DriverDoorbells:
        """Wakes workers that execute `serve`.

        Raises:
            RuntimeError: The runtime was created without doorbells.
        """
        if self._doorbells is None:
            raise RuntimeError("doorbells: this runtime has none. Create it with doorbells=True.")
        return self._doorbells

    def submit(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> Reply[R]:
        """Send the call to one worker, which executes its calls in order. Does not block."""
        message = packed_call(call, args, kwargs)
        reply: Reply[R] = Reply(worker, call.__name__)
        self._pending.add(reply)
        self._workers[worker].send(message)
        return reply

    def submit_all(self, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Send the call to all workers, pickled once. Does not block."""
        message, name = packed_call(call, args, kwargs), call.__name__
        replies: list[Reply[R]] = [Reply(worker, name) for worker in range(self.num_workers)]
        # Bind before waking a worker: later, the core would be busy with that worker for a time slice.
        self._affinity_scope.close()
        self._affinity_scope.enter_context(self._wait_affinity)
        for reply, worker in zip(replies, self._workers, strict=True):
            self._pending.add(reply)
            worker.send(message)
        return replies

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Block until all replies are done, or one of them. See `Runtime.wait`."""
        check_not_forgotten(replies)
        with self._affinity_scope:
            self._pending.raise_loss()
            if all:
                self._pending.wait_all(replies, timeout_s)
            else:
                self._pending.wait_any(replies, timeout_s)
        return [reply for reply in replies if reply.done]

    def respawn(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Replace a worker by a new process with the same groups. Blocks until it has started and executed the call."""
        old = self._workers[worker]
        old.end(perf_counter())
        kill_marked([old.mark])
        self._pending.forget(worker)
        self._lines[worker] = 0
        if self._doorbells is not None:
            self._doorbells.forget(worker)
        self._workers[worker] = self._new(old.share)
        old.release()
        self._watch()
        self._pending.wait_all([self._expect_start(worker)], math.inf)
        first = self.submit(worker, call, *args, **kwargs)
        self._pending.wait_all([first], math.inf)
        return first.result()

    def work(self, count: int) -> None:
        """Distribute tasks 0 to count - 1 over workers and driver, and block until all are done.

        Raises:
            WorkerError: A task failed, or its worker died and there is no `local_gradient`.
        """
        if self._work_queue is not None:
            self._distribute(self._work_queue, count)
        elif not self._pending:
            for first in range(0, count, self.num_workers):
                tasks = range(first, min(count, first + self.num_workers))
                replies = [self.submit(worker, work, task) for worker, task in enumerate(tasks)]
                self._pending.wait_all(replies, math.inf)
        elif self._local_gradient is not None:
            # The workers would start on the tasks only after the calls that they are executing.
            for task in range(count):
                self._local_gradient(task)
        else:
            raise WorkerError("work: needs `local_gradient` while a call is running. Pass one to the runtime.")

    def _distribute(self, queue: work_queue.WorkQueue, count: int) -> None:
        """Put tasks into the work queue and wait until all are done; the driver computes the tasks of dead workers."""
        pending = queue.put(count)
        while pending and self._local_gradient is not None and (task := queue.take()) is not None:
            self._local_gradient(task)
            pending -= {task, *queue.finished()}  # usually leaves nothing to wait for
        # While calls are pending the pipes hold their results, so only the sentinels show that a worker failed.
        poll = self._deaths if self._pending else self._failures
        moved, died = perf_counter(), False
        while pending:
            ready = {fd for fd, _ in work_queue.wait(poll, self._wait_affinity, timeout_s=POLL_S)}
            if queue.done_fd in ready:
                pending -= queue.finished()
                ready.remove(queue.done_fd)
                moved = perf_counter()
            for worker in self._workers:
                if pending and not ready.isdisjoint(worker.handles):
                    self._handle_event(worker)
                    died = True
            silent_s = perf_counter() - moved
            if died and self._local_gradient is not None and silent_s > GRACE_S:
                # A worker records its claim right after reading it, so an unclaimed task went with a dead worker.
                for task in pending - set(self._claimants(queue)):
                    self._local_gradient(task)
                    pending.discard(task)
            if pending and silent_s > self._step_timeout_s:
                if not self._kill_claimants(queue, pending, silent_s):
                    raise WorkerHung(
                        f"workers: {len(pending)} tasks of `work` are not done, and none was finished for "
                        f"{self._step_timeout_s:g} s. "
                        "If a minibatch takes that long here, raise --env-timeout-s or lower --batch-size."
                    )
                died, moved = True, perf_counter()

    def _claimants(self, queue: work_queue.WorkQueue) -> dict[int, WorkerHandle]:
        """Return the tasks that living workers are computing, with their workers."""
        alive = [(queue.claimed(int(self._lines[one.share.worker, CLAIM])), one) for one in self._workers if one.alive]
        return {task: one for task, one in alive if task is not None}

    def _kill_claimants(self, queue: work_queue.WorkQueue, pending: set[int], silent_s: float) -> bool:
        """Kill the workers that hang in pending tasks, if the driver can compute those tasks; returns whether it did.

        The next `wait` finds these workers dead and reports why.
        """
        hanging = [
            one for task, one in self._claimants(queue).items() if task in pending and self._local_gradient is not None
        ]
        for worker in hanging:
            worker.hung("work", silent_s, self._step_timeout_s)
        return bool(hanging)

    def _handle_event(self, worker: WorkerHandle) -> None:
        """Handle a message or an exit of a worker during `work`.

        Raises:
            WorkerError: The worker reports an error, or it died and there is no `local_gradient`.
        """
        try:
            worker.receive(self._pending.name(worker.share.worker, "work"))
            raise worker.died("work")  # no error: it finished its call, and then ended
        except WorkerDied:
            if self._local_gradient is None:
                raise
        # The next `wait` reports the death. Until then, its closed pipe must not wake the driver.
        for poll in (self._failures, self._deaths):
            for handle in worker.handles:
                with suppress(KeyError):
                    poll.unregister(handle)

    def pids(self) -> list[int]:
        """Return the process ids, in worker order."""
        return [worker.process.pid or 0 for worker in self._workers]

    def close(self) -> None:
        """Ask the workers to end, and kill those that do not. Idempotent; blocks for seconds at most."""
        if self._closed or os.getpid() != self._driver:  # a forked copy must not end its parent's workers
            return
        self._closed = True
        self._affinity_scope.close()
        self._lines[:, STOP] = 1
        try:
            for worker in self._workers:
                worker.send(CLOSE)
            deadline = perf_counter() + CLOSE_TIMEOUT_S / 2
            for worker in self._workers:
                worker.end(deadline)
        except BaseException:  # for example a second Ctrl-C: do not wait any longer
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.end(perf_counter())
            raise
        finally:
            kill_marked([worker.mark for worker in self._workers])
        if self._work_queue is not None:
            self._work_queue.close()
        if self._doorbells is not None:
            self._doorbells.close()

    def __del__(self) -> None:
        self.close()

    def _watch(self) -> None:
        """Set up what waits listen to; call it again whenever a worker has been replaced."""
        if self._doorbells is not None:
            self._doorbells.watch(self._workers)
        if self._work_queue is None:
            return
        self._failures, self._deaths = select.poll(), select.poll()
        for poll in (self._failures, self._deaths):
            poll.register(self._work_queue.done_fd, select.POLLIN)
            for worker in self._workers:
                poll.register(worker.handles[1], select.POLLIN)
        for worker in self._workers:
            self._failures.register(worker.handles[0], select.POLLIN)


def work(job: Job, task: int) -> None:
    """Compute one task; the call that is submitted on platforms without a work queue."""
    if not isinstance(job, GradientJob):
        raise TypeError(f"{type(job).__name__}: has no `work`, and cannot compute gradients.")
    job.work(task)


class _Closable(Protocol):
    def close(self) -> None: ...


_OPEN: weakref.WeakSet[_Closable] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """Close open runtimes at exit: multiprocessing would send SIGTERM, which workers ignore, and wait for ever."""
    for runtime in list(_OPEN):
        runtime.close()

"""Worker processes on this machine.

    driver ──socketpair── worker 0: groups 0..3 ─┐
           ──socketpair── worker 1: groups 4..7 ─┴─ arena (mapped by all)

The driver waits on the pipes *and* the process sentinels at once, and looks at every worker's heartbeat: a
worker may fail, but it may not vanish.
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
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from paceline.errors import WorkerDied, WorkerError, WorkerHung, WorkerLost
from paceline.memory.shared import Arena
from paceline.memory.worker_status import BEAT, CLAIM, STOP
from paceline.runtime import work_queue
from paceline.runtime.doorbell import Linger, ProcessBells
from paceline.runtime.forkserver import StartMethod, child_environment, default_start_method, start_fork_server
from paceline.runtime.inference_requests import InferenceRequests
from paceline.runtime.messages import CLOSE, packed_call
from paceline.runtime.pickled_program import pack
from paceline.runtime.protocol import GradientJob, Job, Program, Reply, Share, check_remembered, shares
from paceline.runtime.replies import POLL_S, PendingReplies
from paceline.runtime.worker_handle import HangDetector, WorkerHandle
from paceline.system import threads
from paceline.system.wait_affinity import wait_cores, wait_on

CLOSE_TIMEOUT_S = 5.0
GRACE_S = 1.0
"""How long to wait for pieces of work after a worker died, before doing them by hand: much longer than one takes."""

J = TypeVar("J", bound=Job)
P = ParamSpec("P")
R = TypeVar("R")


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
            arena: Shared memory; holds `heartbeat_field(num_workers)`, and `bell_fields(num_workers)` for bells.
            groups: Groups to share out.
            num_workers: Processes to start.
            first_group: The first of the groups: not 0 where other machines have those before it.
            start_method: How; None for the platform's default.
            preload: Modules the fork server imports once for all: a worker then starts in hundredths of a second.
            cores: Cores to pin workers to, in turn.
            take_turns: Whether the driver rests while workers work, and a worker while the driver does; then each has
                a home.
            start_timeout_s: How long building a job, and then its first heartbeat, may take.
            step_timeout_s: How long a worker may go without a further heartbeat.
            local_gradient: Does an item of `work` right here; None leaves them all to the workers.
            doorbells: Whether jobs can `serve`; `doorbells` then rings them.
            unit: What error texts call a group.
            inference_requests: Where jobs can ask; a job then has `connect(asker)`.
            respawns: Whether the caller replaces workers that are lost. One that is lost while it starts is then
                reported by the first command, and not here.
        """
        self.num_workers = num_workers
        self._start_timeout_s, self._step_timeout_s = start_timeout_s, step_timeout_s
        lines: NDArray[np.int64] = arena["heartbeat"]
        self._lines, self._heartbeat, self._claims, self._stop = lines, lines[:, BEAT], lines[:, CLAIM], lines[:, STOP]
        self._hang_detector = HangDetector(self._heartbeat, start_timeout_s, step_timeout_s)
        self._workers, self._local_gradient = list[WorkerHandle](), local_gradient
        self._tickets: work_queue.WorkQueue | None = None
        self._doorbells: ProcessBells | None = None
        self._closed, self._unit, self._inference_requests, self._bound = False, unit, inference_requests, ExitStack()
        self._pending = PendingReplies(self._workers, self._hang_detector, num_workers)
        self._method = start_method or default_start_method()
        self._packed, self._arena, self._cores = pack(program), arena, cores
        self._wait_cores = wait_cores(num_workers) if take_turns and cores is None else [None] * num_workers
        self._wait_affinity = wait_on(self._wait_cores[-1])
        # With the driver's own hand, this many keep every core busy; more would only take turns.
        self._helpers = num_workers if local_gradient is None else max(1, threads.core_budget() - 1)
        _OPEN.add(self)
        try:
            if self._method == "forkserver":
                start_fork_server(preload)
            elif self._method == "spawn" and os.name == "posix":
                resource_tracker.ensure_running()  # otherwise inside `child_environment`, where it unblocks Ctrl-C
            if doorbells:
                self._doorbells = ProcessBells(arena, num_workers, Linger.fitting(num_workers, threads.core_budget()))
            if work_queue.AVAILABLE:
                self._tickets = work_queue.WorkQueue(multiprocessing.get_context(self._method))
            for share in shares(groups, num_workers, first_group):
                self._workers.append(self._new(replace(share, helps=not self._tickets or share.worker < self._helpers)))
            self._await_start(respawns)
            self._watch()
        except BaseException:
            self.close()
            raise

    def _new(self, share: Share) -> WorkerHandle:
        """Start the process of one worker; it answers when it has built its job."""
        core = self._cores[share.worker % len(self._cores)] if self._cores else None
        theirs = self._tickets.theirs if self._tickets and share.helps else None
        foreign = [end for other in self._workers if other.share != share for end in other.ours]
        foreign += self._tickets.ours if self._tickets else ()
        with child_environment():
            doorbell = self._doorbells.theirs(share.worker) if self._doorbells else None
            asking = self._inference_requests.theirs(share.worker) if self._inference_requests else None
            order = (self._packed, self._arena, core, theirs, foreign, doorbell, self._unit, asking)
            return WorkerHandle(self._method, share, *order, self._wait_cores[share.worker])

    def _await_start(self, respawns: bool) -> None:
        starting = [self._expect_start(worker) for worker in range(self.num_workers)]
        while starting:
            try:
                self._pending.wait_all(starting, math.inf)
                return
            except WorkerLost as loss:
                if not respawns:
                    raise
                self._pending.note(loss)
                self._pending.forget(loss.worker)
                starting = [reply for reply in starting if reply.worker != loss.worker]

    def _expect_start(self, worker: int) -> Reply[None]:
        """The reply that a new worker sends by itself, when it has built its job."""
        reply: Reply[None] = Reply(worker, "start")
        self._pending.add(reply)
        return reply

    @property
    def doorbells(self) -> ProcessBells:
        """Rings the workers, while they `serve`; only of a runtime that was made with bells."""
        if self._doorbells is None:
            raise RuntimeError("bells: this runtime was made without. Pass bells=True.")
        return self._doorbells

    def submit(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> Reply[R]:
        """Send the call to one worker, which executes what it is sent in order."""
        message = packed_call(call, args, kwargs)
        reply: Reply[R] = Reply(worker, call.__name__)
        self._pending.add(reply)
        self._workers[worker].send(message)
        return reply

    def submit_all(self, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Send the call to all workers, pickled once."""
        message, name = packed_call(call, args, kwargs), call.__name__
        replies: list[Reply[R]] = [Reply(worker, name) for worker in range(self.num_workers)]
        # Bind before waking a worker: later, the core would be busy with that worker for a time slice.
        self._bound.close()
        self._bound.enter_context(self._wait_affinity)
        for reply, worker in zip(replies, self._workers, strict=True):
            self._pending.add(reply)
            worker.send(message)
        return replies

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Block until all replies are done, or one of them. With `all`, the last worker of them wakes the driver."""
        check_remembered(replies)
        with self._bound:
            self._pending.raise_loss()
            if all:
                self._pending.wait_all(replies, timeout_s)
            else:
                self._pending.wait_any(replies, timeout_s)
        return [reply for reply in replies if reply.done]

    def respawn(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """A new process with the same share of the groups. Blocks until it has started and executed the call."""
        old = self._workers[worker]
        old.end(perf_counter())
        self._pending.forget(worker)
        self._lines[worker] = 0
        if self._doorbells is not None:
            self._doorbells.forget(worker)
        self._workers[worker] = self._new(old.share)
        old.let_go()
        self._watch()
        self._pending.wait_all([self._expect_start(worker)], math.inf)
        first = self.submit(worker, call, *args, **kwargs)
        self._pending.wait_all([first], math.inf)
        return first.result()

    def work(self, count: int) -> None:
        """Offer the items as tickets, do some by hand, and wait until all are done."""
        if self._tickets is not None:
            self._offer(self._tickets, count)
        elif not self._pending:
            for first in range(0, count, self.num_workers):
                items = range(first, min(count, first + self.num_workers))
                replies = [self.submit(worker, work, item) for worker, item in enumerate(items)]
                self._pending.wait_all(replies, math.inf)
        elif self._local_gradient is not None:
            # Workers are busy, and would get to this only after the calls that were submitted before.
            for own in range(count):
                self._local_gradient(own)
        else:
            raise WorkerError("work: needs a hand of the driver's own while a command is under way. Give one.")

    def _offer(self, offered: work_queue.WorkQueue, count: int) -> None:
        """Offer items to all workers. The driver computes what a worker held that died meanwhile."""
        pending = offered.put(count)
        while pending and self._local_gradient is not None and (item := offered.take()) is not None:
            self._local_gradient(item)
            pending -= {item, *offered.finished()}  # mostly all there is, and nothing left to ask for
        # While calls are pending their results wait in the pipes: then only the death of a worker counts.
        poll = self._deaths if self._pending else self._failures
        moved, died = perf_counter(), False
        while pending:
            ready = {fd for fd, _ in work_queue.wait(poll, self._wait_affinity, timeout_s=POLL_S)}
            if offered.done_fd in ready:
                pending -= offered.finished()
                ready.remove(offered.done_fd)
                moved = perf_counter()
            for worker in self._workers:
                if pending and not ready.isdisjoint(worker.handles):
                    self._look_into(worker)
                    died = True
            silent_s = perf_counter() - moved
            if died and self._local_gradient is not None and silent_s > GRACE_S:
                # A worker notes its claim at once, long before this.
                for item in pending - set(self._holders(offered)):
                    self._local_gradient(item)
                    pending.discard(item)
            if pending and silent_s > self._step_timeout_s and self._end_holders(offered, pending, silent_s):
                died, moved = True, perf_counter()
            elif pending and silent_s > self._step_timeout_s:
                raise WorkerHung(
                    f"workers: {len(pending)} pieces of `work` are not done and nothing was for "
                    f"{self._step_timeout_s:g} s. "
                    "If a minibatch takes that long here, raise --env-timeout-s or lower --batch-size."
                )

    def _holders(self, offered: work_queue.WorkQueue) -> dict[int, WorkerHandle]:
        """Items that somebody is still at, and who."""
        alive = [(offered.claimed(int(self._claims[one.share.worker])), one) for one in self._workers if one.alive]
        return {item: one for item, one in alive if item is not None}

    def _end_holders(self, offered: work_queue.WorkQueue, pending: set[int], silent_s: float) -> bool:
        """Kill whoever hangs in a piece of work, where the driver can do it instead; whether there was one.

        The next command finds them dead, and says why.
        """
        hanging = [
            one for item, one in self._holders(offered).items() if item in pending and self._local_gradient is not None
        ]
        for worker in hanging:
            worker.hung("work", silent_s, self._step_timeout_s)
        return bool(hanging)

    def _look_into(self, worker: WorkerHandle) -> None:
        """What a worker said in the middle of `work`, where only errors are said; its death may be got over."""
        try:
            worker.receive(self._pending.name(worker.share.worker, "work"))
            raise worker.died("work")  # it had answered the call, and nobody replies to a ticket
        except WorkerDied:
            if self._local_gradient is None:
                raise
        # The next command finds it dead. Until then nothing more is to be heard of it.
        for poll in (self._failures, self._deaths):
            for handle in worker.handles:
                with suppress(KeyError):
                    poll.unregister(handle)

    def pids(self) -> list[int]:
        """Process ids, in worker order."""
        return [worker.process.pid or 0 for worker in self._workers]

    def close(self) -> None:
        """Ask, then kill. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._bound.close()
        self._stop[:] = 1
        try:
            for worker in self._workers:
                worker.send(CLOSE)
            deadline = perf_counter() + CLOSE_TIMEOUT_S / 2
            for worker in self._workers:
                worker.end(deadline)
        except BaseException:  # a Ctrl-C of somebody who will not wait
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.end(perf_counter())
            raise
        if self._tickets is not None:
            self._tickets.close()
        if self._doorbells is not None:
            self._doorbells.close()

    def __del__(self) -> None:
        self.close()

    def _watch(self) -> None:
        """All that a wait for tickets listens to, with and without what workers say."""
        if self._doorbells is not None:
            workers, hang_detector = self._workers, self._hang_detector

            def check(numbers: list[int], doing: str) -> None:
                hang_detector.check([(workers[number], doing) for number in numbers])

            self._doorbells.watch(workers, hang_detector.begin, check)
        if self._tickets is None:
            return
        self._failures, self._deaths = select.poll(), select.poll()
        for poll in (self._failures, self._deaths):
            poll.register(self._tickets.done_fd, select.POLLIN)
            for worker in self._workers:
                poll.register(worker.handles[1], select.POLLIN)
        for worker in self._workers:
            self._failures.register(worker.handles[0], select.POLLIN)


def work(job: Job, item: int) -> None:
    """The call that computes an item, where there are no work_queue."""
    if not isinstance(job, GradientJob):
        raise TypeError(f"{type(job).__name__}: has no `work`, and cannot compute gradients.")
    job.work(item)


class _Closable(Protocol):
    def close(self) -> None: ...


_OPEN: weakref.WeakSet[_Closable] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """Before multiprocessing ends its daemons by SIGTERM, which workers leave to the driver, and waits for ever."""
    for runtime in list(_OPEN):
        runtime.close()

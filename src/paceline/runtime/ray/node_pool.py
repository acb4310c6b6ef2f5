"""The workers of one node of a cluster: an arena and a process runtime of their own, driven by calls of the driver.

    driver  --call, weights-->  pool  --call---->  workers          the same process runtime as on one machine
            <--one buffer-----        <--result--

1. At first the thread that calls a method (Ray's) executes it and waits for the workers itself.
2. From the first `post` or `renew` on, one thread (`_serve`) does everything that involves the workers: it takes tasks
   from the inbox, and in between receives results and puts them into the outbox.
3. `results` returns what is in the outbox.

This module does not depend on Ray or on how calls are sent.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paceline.errors import WorkerLost
from paceline.measure.machine import SystemSampler
from paceline.memory.shared import Arena
from paceline.memory.worker_status import BEAT, note_memory
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.messages import Call, error_text
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Job, Reply, Share, shares
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange, Transfer, pack, unload

SLICE_S = 0.005
"""How long to wait for results of posted calls before checking the inbox again."""

Loads = Mapping[str, Sequence[NDArray[Any]]]
"""Arrays from the driver, by name of the load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePoolSetup:
    """Settings of a pool."""

    first_group: int
    groups: int
    workers: int
    start_method: StartMethod | None
    preload: tuple[str, ...]
    start_timeout_s: float
    step_timeout_s: float


@dataclass(frozen=True, slots=True)
class PoolReply:
    """The answer of a pool. Errors are sent as text, because an exception might not survive pickling."""

    kind: Literal["ok", "died", "error"]
    worker: int = 0
    """Index in this pool of the worker that answers or died."""
    value: Any = None
    """Results, or the text of the error."""
    buffer: NDArray[np.uint8] | None = None
    """Arrays that the workers wrote, packed by `transfer.pack`."""


class NodePool:
    """The workers of one machine.

    Args:
        transfer: A `Transfer`, pickled by cloudpickle, which also accepts lambdas and classes of the user's script.
        setup: Settings of the pool.
    """

    def __init__(self, transfer: bytes, setup: NodePoolSetup) -> None:
        self._transfer: Transfer[Job] = cloudpickle.loads(transfer)
        self._shares = shares(setup.groups, setup.workers, setup.first_group)
        self._held = GroupRange(setup.first_group, setup.groups)
        self._arena = Arena.create(self._transfer.fields(self._held, setup.workers))
        self._posted: dict[Reply[object], tuple[Call, tuple[Any, ...]]] = {}  # in the order in which they were posted
        self._joint_call: tuple[Call, tuple[Any, ...]] | None = None  # the call that all workers execute
        self._replies: list[Reply[object]] = []  # to that call, in worker order
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[PoolReply] = queue.SimpleQueue()
        self._stopped = False  # after a failure no results are received until the driver has replaced the worker
        try:
            self._runtime: ProcessRuntime[Job] = ProcessRuntime(
                self._transfer.program(self._held),
                self._arena,
                setup.groups,
                setup.workers,
                first_group=setup.first_group,
                start_method=setup.start_method,
                preload=setup.preload,
                start_timeout_s=setup.start_timeout_s,
                step_timeout_s=setup.step_timeout_s,
                respawns=True,
            )
        except BaseException:
            self._arena.close()
            raise
        self._system = SystemSampler()
        self._thread: threading.Thread | None = None

    # Methods that the driver calls one after another. Only `results`, `beats` and `pids` may be called in between.

    def do(self, call: Call, args: tuple[Any, ...], loads: Loads) -> PoolReply:
        """Execute a call on all workers; blocks until all are done."""
        return self._execute(lambda: self._do(call, args, loads))

    def finish(self) -> PoolReply:
        """Continue `do` after workers were replaced: these execute the call again. Blocks until all are done."""
        return self._execute(self._finish)

    def respawn(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> PoolReply:
        """Replace a worker that died; the new one executes the call first. Blocks until it is done."""
        return self._execute(lambda: self._respawn(worker, call, args, loads))

    def tell(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> PoolReply:
        """Execute a call on one worker; blocks until it is done."""
        return self._execute(lambda: self._tell(worker, call, args, loads))

    def post(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> None:
        """Submit a call to one worker, after its earlier calls. Does not block; `results` returns the reply."""
        self._queue_task(lambda: self._post(worker, call, args, loads))

    def renew(self, loads: Loads) -> None:
        """Write new data into the arena while workers are busy. Does not block."""
        self._queue_task(lambda: self._store(loads, self._shares))

    def results(self, timeout_s: float) -> list[PoolReply]:
        """Return the replies to posted calls since the last call; blocks until there is one, or the timeout."""
        replies: list[PoolReply] = []
        with suppress(queue.Empty):
            replies.append(self._outbox.get(timeout=timeout_s))
            while True:
                replies.append(self._outbox.get_nowait())
        return replies

    def beats(self) -> int:
        """Return a number that changes while workers send heartbeats."""
        return int(self._arena["heartbeat"][:, BEAT].sum())

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return self._runtime.pids()

    def close(self) -> None:
        """End the workers and release the arena."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join(10.0)
        self._runtime.close()
        self._arena.close()

    def _queue_task(self, task: Callable[[], None]) -> None:
        """Queue a task for the thread, which is started by the first such task. Does not block."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="paceline-pool", daemon=True)
            self._thread.start()
        self._inbox.put(task)

    def _execute(self, task: Callable[[], PoolReply]) -> PoolReply:
        """Execute a task and return its reply: in this thread unless `_serve` runs, since switching takes time."""
        if self._thread is None:
            return _reply_or_failure(task)
        answer: Future[PoolReply] = Future()
        self._inbox.put(lambda: answer.set_result(_reply_or_failure(task)))
        return answer.result()

    # One thread executes everything below: the caller's at first, and the thread of `_serve` once that runs.

    def _serve(self) -> None:
        while True:
            listening = bool(self._posted) and not self._stopped
            try:
                task = self._inbox.get(block=not listening)
            except queue.Empty:
                self._listen()
                continue
            if task is None:
                return
            try:
                task()
            except Exception as error:
                self._outbox.put(failure(error))

    def _listen(self) -> None:
        try:
            for reply in self._runtime.wait(list(self._posted), all=False, timeout_s=SLICE_S):
                self._answered(reply)
        except Exception as error:
            self._stopped = True
            self._outbox.put(failure(error))

    def _answered(self, reply: Reply[object]) -> None:
        """Put the result of a posted call into the outbox."""
        call, args = self._posted.pop(reply)
        self._outbox.put(self._reply_of(reply.worker, reply.result(), call, args))

    def _reply_of(self, worker: int, result: object, call: Call, args: tuple[Any, ...]) -> PoolReply:
        """Return a worker's result together with the arrays it wrote."""
        mine = self._shares[worker : worker + 1]
        return PoolReply("ok", worker, result, self._pack_results(call, args, [result], mine))

    def _do(self, call: Call, args: tuple[Any, ...], loads: Loads) -> PoolReply:
        self._store(loads, self._shares)
        self._joint_call = call, args
        self._replies = self._runtime.submit_all(call, *args)
        return self._finish()

    def _finish(self) -> PoolReply:
        if self._joint_call is None:
            raise RuntimeError("finish: no call to all workers was started by `do`.")
        call, args = self._joint_call
        for worker, reply in enumerate(self._replies):
            if reply.forgotten:
                self._replies[worker] = self._runtime.submit(worker, call, *args)
        results = [reply.result() for reply in self._runtime.wait(self._replies, all=True)]
        return PoolReply("ok", value=results, buffer=self._pack_results(call, args, results, self._shares))

    def _respawn(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> PoolReply:
        self._store(loads, self._shares[worker : worker + 1])
        self._posted = {reply: call_of for reply, call_of in self._posted.items() if reply.worker != worker}
        result = self._runtime.respawn(worker, call, *args)
        self._stopped = False
        return self._reply_of(worker, result, call, args)

    def _tell(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> PoolReply:
        self._store(loads, self._shares[worker : worker + 1])
        submitted = self._runtime.submit(worker, call, *args)
        while not submitted.done:
            for reply in self._runtime.wait([submitted, *self._posted], all=False, timeout_s=1.0):
                if reply is not submitted:
                    self._answered(reply)
        return self._reply_of(worker, submitted.result(), call, args)

    def _post(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> None:
        self._store(loads, self._shares[worker : worker + 1])
        self._posted[self._runtime.submit(worker, call, *args)] = call, args

    def _store(self, loads: Loads, owners: Sequence[Share]) -> None:
        for name, parts in loads.items():
            unload(parts, self._transfer.down(name, self._arena, self._held, owners))

    def _pack_results(
        self, call: Call, args: tuple[Any, ...], results: Sequence[Any], owners: Sequence[Share]
    ) -> NDArray[np.uint8]:
        note_memory(self._arena["heartbeat"], self._runtime.pids(), self._system.sample().each_mb)
        return pack(self._transfer.up(ExecutedCall(call.__name__, args, results), self._arena, self._held, owners))


def _reply_or_failure(task: Callable[[], PoolReply]) -> PoolReply:
    try:
        return task()
    except Exception as error:
        return failure(error)


def failure(error: BaseException) -> PoolReply:
    """Return the reply that reports an error."""
    if isinstance(error, WorkerLost):  # dead, or killed because it hung: the driver can replace it
        return PoolReply("died", error.worker, str(error))
    return PoolReply("error", value=error_text(error))

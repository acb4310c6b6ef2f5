"""The driver's end of one worker process: its pipes, its replies, its end, and how long it has been silent."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import WorkerDied, WorkerError, WorkerHung
from paceline.memory.shared import Arena
from paceline.runtime import tickets
from paceline.runtime.bells import WorkerBell
from paceline.runtime.protocol import Share
from paceline.runtime.questions import WorkerQuestions
from paceline.runtime.worker import WorkerOrder, worker_main


class WorkerHandle:
    """The driver's end of one worker."""

    def __init__(
        self,
        method: str,
        share: Share,
        program: bytes,
        arena: Arena,
        core: int | None,
        theirs_tickets: tickets.WorkerTickets | None,
        foreign: list[Any],
        bell: WorkerBell | None = None,
        unit: str = "groups",
        questions: WorkerQuestions | None = None,
    ) -> None:
        ctx: Any = multiprocessing.get_context(method)
        self.share, self._unit = share, unit
        self.conn, theirs = ctx.Pipe()
        guard, self._alive = ctx.Pipe(duplex=False)  # the driver holds the write end for life and writes nothing
        order = WorkerOrder(share, program, arena, theirs, guard, theirs_tickets, bell, questions, core)
        target = _forked_main if method == "fork" else worker_main
        # A forked child inherits the driver's ends of its own pipes and of those made before it; while it holds
        # them, nobody would see the driver die.
        args = (order, [*self.ours, *foreign]) if method == "fork" else (order,)
        self.process: BaseProcess = ctx.Process(target=target, args=args, name=f"paceline-worker-{share.worker}")
        self.process.daemon = True
        self.process.start()
        theirs.close()
        guard.close()

    @property
    def ours(self) -> tuple[Any, Any]:
        """The driver's ends of its pipes."""
        return self.conn, self._alive

    @property
    def handles(self) -> tuple[int, int]:
        """What becomes readable when it says something or ends."""
        return self.conn.fileno(), self.process.sentinel

    @property
    def name(self) -> str:
        """How messages call it."""
        last = self.share.first_group + self.share.groups - 1
        return f"worker {self.share.worker} (pid {self.process.pid}, {self._unit} {self.share.first_group}-{last})"

    def send(self, command: str, args: tuple[Any, ...]) -> None:
        """Have it do something; whoever waits for the reply will find out if it is gone."""
        with suppress(OSError):
            self.conn.send((command, args))

    def receive(self, command: str) -> Any:
        """The reply; raises what went wrong there."""
        try:
            if not self.conn.poll():
                raise EOFError
            kind, value = self.conn.recv()
        except (EOFError, OSError):
            raise self.died(command) from None
        if kind == "error":
            what, trace = value
            raise WorkerError(f"{self.name} failed in `{command}`: {what}\n\nIts traceback:\n{trace.rstrip()}")
        return value

    def died(self, command: str) -> WorkerDied:
        """The error for a worker that is gone: what ended it."""
        self.process.join(1.0)
        what = f"{self.name} ended in `{command}`: {describe_exit(self.process.exitcode)}"
        return WorkerDied(what, self.share.worker)

    def end(self, deadline: float) -> None:
        """Wait until `deadline`, then kill (workers leave SIGTERM to the driver); close our ends."""
        self.process.join(max(0.0, deadline - perf_counter()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join(1.0)
        self.conn.close()
        self._alive.close()


def first_ready(workers: Sequence[WorkerHandle], timeout_s: float) -> list[WorkerHandle]:
    """Those that have said something or ended by then; empty if none has."""
    handles = {handle: worker for worker in workers for handle in (worker.conn, worker.process.sentinel)}
    ready = connection.wait(list(handles), timeout=timeout_s)
    return list({handles[handle].share.worker: handles[handle] for handle in ready}.values())


class Patience:
    """How long each worker has been silent, since its last heartbeat or since the wait began."""

    def __init__(self, heartbeat: NDArray[np.int64], start_timeout_s: float, step_timeout_s: float) -> None:
        self._heartbeat, self._start_s, self._step_s = heartbeat, start_timeout_s, step_timeout_s
        self._beat = heartbeat.copy()
        self._moved = np.full(len(heartbeat), perf_counter())

    def begin(self, worker: int) -> None:
        """It has rested, and begins now."""
        self._moved[worker] = perf_counter()

    def check(self, waiting: Sequence[WorkerHandle], command: str) -> None:
        """Raise WorkerHung if one of them has been silent for too long."""
        now = perf_counter()
        self._moved[self._heartbeat != self._beat] = now
        self._beat[:] = self._heartbeat
        for worker in waiting:
            silent_s = now - self._moved[worker.share.worker]
            timeout_s = self._step_s if self._beat[worker.share.worker] else self._start_s
            if silent_s > timeout_s:
                raise WorkerHung(
                    f"{worker.name}: no sign of life in `{command}` for {silent_s:.0f} s (limit {timeout_s:g} s). "
                    "An env may hang; if it is only slow, raise --env-timeout-s (or --start-timeout-s)."
                )


def _forked_main(order: WorkerOrder, foreign: list[Any]) -> None:
    for end in foreign:
        end.close()
    worker_main(order)


def describe_exit(code: int | None) -> str:
    """What an exit code means, in words."""
    if code is None:
        return "it does not answer but still runs."
    if code == -signal.SIGKILL:
        return "killed by SIGKILL. Often the kernel's out-of-memory killer: look at `dmesg`, lower --n-envs."
    if code < 0:
        return f"killed by {signal.Signals(-code).name}. A crash in native code: see the dump above."
    return f"it left with exit code {code}. Something in the env called exit."

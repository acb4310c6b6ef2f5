"""The driver's end of one worker process: its pipes, its replies, its end, and how long it has been silent."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from time import perf_counter
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from paceline.errors import WorkerDied, WorkerError, WorkerHung
from paceline.memory.shared import Arena
from paceline.memory.worker_status import MEMORY, envs_of
from paceline.runtime import work_queue
from paceline.runtime.doorbell import WorkerBell
from paceline.runtime.inference_requests import WorkerQuestions
from paceline.runtime.messages import hear_result
from paceline.runtime.protocol import Share
from paceline.runtime.stacks import StackFile
from paceline.runtime.worker import WorkerOrder, worker_main
from paceline.system.wakeups import DescriptorWatch, descriptor

STARTING = ("start", "reset", "restore")
"""Commands in which envs are made or reset for the first time: each env may take the start-up limit."""
SEND_TIMEOUT_S = 20
"""How long a command may take to go into a worker's pipe."""
NOTICE_S = 10.0
"""After this long, or half of the limit, the user is told who is silent."""

_log = logging.getLogger(__name__)


class WorkerHandle:
    """The driver's end of one worker."""

    def __init__(
        self,
        method: str,
        share: Share,
        program: bytes,
        arena: Arena,
        core: int | None,
        theirs_tickets: work_queue.WorkerTickets | None,
        foreign: list[Any],
        doorbell: WorkerBell | None = None,
        unit: str = "groups",
        inference_requests: WorkerQuestions | None = None,
        wait_core: int | None = None,
    ) -> None:
        ctx: Any = multiprocessing.get_context(method)
        self.share, self._unit = share, unit
        self.conn, theirs = ctx.Pipe()
        _limit_sends(self.conn)
        guard, self._alive = ctx.Pipe(duplex=False)  # the driver holds the write end for life and writes nothing
        self._line: NDArray[np.int64] = arena["heartbeat"][share.worker]
        self._stacks = StackFile.create()
        self._fate = ""  # what we did to it
        order = WorkerOrder(
            share,
            program,
            arena,
            theirs,
            guard,
            theirs_tickets,
            doorbell,
            inference_requests,
            core=core,
            wait_on=wait_core,
            stacks=self._stacks,
        )
        target = _forked_main if method == "fork" else worker_main
        # A forked child inherits the driver's ends of its own pipes and of those made before it; while it holds
        # them, nobody would see the driver die.
        args = (order, [*self.ours, *foreign]) if method == "fork" else (order,)
        self.process: BaseProcess = ctx.Process(target=target, args=args, name=f"paceline-worker-{share.worker}")
        self.process.daemon = True
        self.process.start()
        theirs.close()
        guard.close()
        self.handles = descriptor(self.conn), self.process.sentinel
        """What becomes readable when it says something, and when it ends."""
        self.heard = DescriptorWatch([self.conn, self.process.sentinel])

    @property
    def ours(self) -> tuple[Any, Any]:
        """The driver's ends of its pipes."""
        return self.conn, self._alive

    @property
    def alive(self) -> bool:
        """Whether it may still do something. One that was killed does not, even while the system keeps it."""
        return not self._fate and self.process.is_alive()

    @property
    def name(self) -> str:
        """How messages call it."""
        last = self.share.first_group + self.share.groups - 1
        return f"worker {self.share.worker} (pid {self.process.pid}, {self._unit} {self.share.first_group}-{last})"

    def send(self, message: bytes) -> None:
        """Send it a packed call. Where it is gone or reads only part of it, whoever waits for the reply finds out."""
        with suppress(OSError):
            self.conn.send_bytes(message)

    def receive(self, command: str) -> Any:
        """The reply; raises what went wrong there."""
        try:
            # Only what is there: an env's own process may hold a dead worker's end, and it would never be closed.
            if self.handles[0] not in self.heard.wait(0.0):
                raise EOFError
            kind, value = hear_result(self.conn)
        except (EOFError, OSError):
            raise self.died(command) from None
        if kind == "ok":
            return value
        what, trace = value
        what, trace = f"{self.name} failed in `{command}`: {what}", f"Its traceback:\n{trace.rstrip()}"
        if kind == "exit":
            raise WorkerDied(
                f"{what}. Something in the env calls sys.exit.", self.share.worker, trace, f"exit{self.where}"
            )
        raise WorkerError(f"{what}\n\n{trace}")

    def died(self, command: str) -> WorkerDied:
        """The error for a worker that is gone: what ended it, and where it was."""
        self.process.join(1.0)
        fate = self._fate or f"{describe_exit(self.process.exitcode)}{self._memory()}"
        where, stack = self.where, "" if self._stacks is None else self._stacks.read()
        what = f"{self.name} ended in `{command}`{where}: {fate}"
        code = self.process.exitcode
        cause = "" if code in (None, -signal.SIGKILL) else f"{code}{where}"
        return WorkerDied(what, self.share.worker, f"Its stack:\n{stack}" if stack else "", cause)

    def hung(self, command: str, silent_s: float, timeout_s: float) -> WorkerHung:
        """Ask where it is, and kill it; the error that says so."""
        pid, where = self.process.pid or 0, self.where
        stack = "" if self._stacks is None else self._stacks.ask(pid)
        with suppress(psutil.Error):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                where += " (it is stopped, as by SIGSTOP or a debugger)"
        self.process.kill()
        self._fate = f"killed after {silent_s:.0f} s without a sign of life."
        return WorkerHung(
            f"{self.name}: no sign of life in `{command}`{where} for {silent_s:.0f} s (limit {timeout_s:g} s); killed. "
            "An env may hang; if it is only slow, raise --env-timeout-s (or --start-timeout-s).",
            self.share.worker,
            f"Its stack:\n{stack}" if stack else "",
            f"hung{where}",
        )

    @property
    def where(self) -> str:
        """The envs it is at, for a sentence; empty between them."""
        envs = envs_of(self._line)
        return f", at {envs}" if envs else ""

    def _memory(self) -> str:
        """Its memory when it last said so, and what the machine has left; for judging whether it was too much."""
        peak_mb, free_mb = int(self._line[MEMORY]) / 1024, psutil.virtual_memory().available / 2**20
        return f" It had taken {peak_mb:,.0f} MB; {free_mb:,.0f} MB are free now." if peak_mb else ""

    def end(self, deadline: float) -> None:
        """Wait until `deadline`, then kill (workers leave SIGTERM to the driver); close our ends."""
        self.process.join(max(0.0, deadline - perf_counter()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join(1.0)
        self.conn.close()
        self._alive.close()
        if self._stacks is not None:
            self._stacks.close()

    def let_go(self) -> None:
        """Close what multiprocessing keeps of one that has ended, too, and do not leave it to the garbage collector."""
        with suppress(ValueError):  # not even a kill has ended it yet
            self.process.close()


def first_ready(workers: Sequence[WorkerHandle], timeout_s: float) -> list[WorkerHandle]:
    """Those that have said something or ended by then; empty if none has."""
    ready = DescriptorWatch([end for worker in workers for end in (worker.conn, worker.handles[1])]).wait(timeout_s)
    return [worker for worker in workers if not ready.isdisjoint(worker.handles)]


def last_ready(workers: Sequence[WorkerHandle], timeout_s: float) -> list[WorkerHandle]:
    """The same when the last one has said something, or anyone has ended, or by then: for who waits for all of them.

    Woken by the first to be done, a driver would take the core of another that is not. The last one's is its own home.
    """
    DescriptorWatch([*(worker.handles[1] for worker in workers), workers[-1].conn]).wait(timeout_s)
    return [worker for worker in workers if worker.heard.wait(0.0)]


class HangDetector:
    """How long each worker has been silent, since its last heartbeat or since the wait began."""

    def __init__(self, heartbeat: NDArray[np.int64], start_timeout_s: float, step_timeout_s: float) -> None:
        self._heartbeat, self._start_s, self._step_s = heartbeat, start_timeout_s, step_timeout_s
        self.shortest_s = min(start_timeout_s, step_timeout_s)
        self._beat = heartbeat.copy()
        self._moved = np.full(len(heartbeat), perf_counter())
        self._told = np.zeros(len(heartbeat), np.bool_)

    def begin(self, worker: int) -> None:
        """It has rested, and begins now."""
        self._moved[worker] = perf_counter()
        self._told[worker] = False

    def check(self, waiting: Iterable[tuple[WorkerHandle, str]]) -> None:
        """Log which workers have been silent for long.

        Args:
            waiting: Workers that are busy, each with the name of what it does.

        Raises:
            WorkerHung: One of them has been silent for too long, and was killed.
        """
        now = perf_counter()
        moved = self._heartbeat != self._beat
        self._moved[moved], self._told[moved] = now, False
        self._beat[:] = self._heartbeat
        for worker, command in waiting:
            number = worker.share.worker
            silent_s = now - self._moved[number]
            starting = command in STARTING or not self._beat[number]
            timeout_s = self._start_s if starting else self._step_s
            if silent_s > timeout_s:
                raise worker.hung(command, silent_s, timeout_s)
            if silent_s > min(NOTICE_S, timeout_s / 2) and not self._told[number]:
                self._told[number] = True
                flag = "--start-timeout-s" if starting else "--env-timeout-s"
                _log.warning(
                    "%s: silent in `%s`%s for %.0f s; it may be until %g s (%s).",
                    worker.name, command, worker.where, silent_s, timeout_s, flag,
                )  # fmt: skip


def _limit_sends(conn: Any) -> None:
    """A worker that is stopped reads nothing, and a long message would wait for it for ever: have it fail instead."""
    if sys.platform != "win32":
        pipe = socket.socket(fileno=os.dup(conn.fileno()))
        try:
            pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))
        finally:
            pipe.close()


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
        return f"killed by {signal.Signals(-code).name}. A crash in native code."
    server = ", or the fork server was killed" if code == 255 else ""  # what is said of its children then
    return f"it left with exit code {code}. Something in the env called exit{server}."

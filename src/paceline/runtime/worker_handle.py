"""The driver's side of one worker process: start, pipes, exit, and hang detection by heartbeats.

driver: WorkerHandle ──socketpair: calls and results── worker process
                     ──guard pipe: closes if the driver ends, and the kernel then kills the worker──
        HangDetector <──heartbeat counter in the arena──
"""

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
from paceline.memory.worker_status import MEMORY, envs_of
from paceline.runtime.messages import receive_result, unpacked_exception
from paceline.runtime.stacks import StackFile
from paceline.runtime.worker import WorkerSetup, worker_main
from paceline.system.descendants import kill_group
from paceline.system.descriptors import close_in_children
from paceline.system.wakeups import DescriptorWatch, descriptor

STARTING = ("start", "reset", "restore")
"""Calls that make or first reset envs: here the start timeout applies to each env instead of the step timeout."""
SEND_TIMEOUT_S = 20
"""How long sending a call may block because the worker does not read its pipe."""
WARN_AFTER_S = 10.0
"""After this long, or half of the timeout, a warning names the silent worker."""

_log = logging.getLogger(__name__)


class WorkerHandle:
    """The driver's side of one worker process. The constructor starts the process.

    Args:
        method: Start method.
        setup: What the worker is to do.
        unit: What error texts call groups (plural).
    """

    def __init__(self, method: str, setup: WorkerSetup, unit: str) -> None:
        ctx: Any = multiprocessing.get_context(method)
        self.share, self.mark, self._unit = setup.share, setup.mark, unit
        self.conn, theirs = ctx.Pipe()
        _limit_send_time(self.conn)
        guard, self._guard_end = ctx.Pipe(duplex=False)  # the driver keeps the write end open and never writes
        close_in_children(self.conn, self._guard_end)
        self._line: NDArray[np.int64] = setup.arena["heartbeat"][self.share.worker]
        self._stacks = StackFile.create()
        self._cause = ""  # why the driver killed it
        self.process: BaseProcess = ctx.Process(
            target=worker_main,
            args=(setup, theirs, guard, self._stacks),
            name=f"paceline-worker-{self.share.worker}",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        guard.close()
        self.handles = descriptor(self.conn), self.process.sentinel
        """File descriptors that become readable when the worker sends a message, and when it ends."""
        self.heard = DescriptorWatch([self.conn, self.process.sentinel])

    @property
    def alive(self) -> bool:
        """Whether the worker still runs. False as soon as the driver has killed it, before the system has ended it."""
        return not self._cause and self.process.is_alive()

    @property
    def name(self) -> str:
        """Name of the worker in error texts and logs."""
        last = self.share.first_group + self.share.groups - 1
        return f"worker {self.share.worker} (pid {self.process.pid}, {self._unit} {self.share.first_group}-{last})"

    def send(self, message: bytes) -> None:
        """Send a packed call. If the worker has ended or does not read it, the wait for the reply raises that."""
        with suppress(OSError):
            self.conn.send_bytes(message)

    def receive(self, command: str) -> Any:
        """Return the next result; raises the error that the worker reports, or WorkerDied.

        The cause of a WorkerError is the exception that the worker's code raised, if it could be sent.
        """
        try:
            # Read only what has arrived: if the worker is dead, a process that its env started may keep the pipe open.
            if self.handles[0] not in self.heard.wait(0.0):
                raise EOFError
            kind, value = receive_result(self.conn)
        except (EOFError, OSError):
            raise self.died(command) from None
        if kind == "ok":
            return value
        what, trace, origin = value
        what, trace = f"{self.name} failed in `{command}`: {what}", f"Its traceback:\n{trace.rstrip()}"
        if kind == "exit":
            raise WorkerDied(
                f"{what}. Something in the env calls sys.exit.", self.share.worker, trace, f"exit{self.where}"
            )
        raise WorkerError(f"{what}\n\n{trace}") from unpacked_exception(origin)

    def died(self, command: str) -> WorkerDied:
        """Return the error for a worker that has ended: why, and in which env."""
        self.process.join(1.0)
        kill_group(self.process.pid or 0)
        fate = self._cause or f"{describe_exit(self.process.exitcode)}{self._memory()}"
        where, stack = self.where, "" if self._stacks is None else self._stacks.read()
        what = f"{self.name} ended in `{command}`{where}: {fate}"
        code = self.process.exitcode
        cause = "" if code in (None, -signal.SIGKILL) else f"{code}{where}"
        return WorkerDied(what, self.share.worker, f"Its stack:\n{stack}" if stack else "", cause)

    def hung(self, command: str, silent_s: float, timeout_s: float, *, starting: bool = False) -> WorkerHung:
        """Read the stack of a hanging worker, kill the worker, and return the error.

        Args:
            command: Name of the call.
            silent_s: How long the worker has been silent.
            timeout_s: The limit.
            starting: Whether that is the limit of a start.
        """
        pid, where = self.process.pid or 0, self.where
        stack = "" if self._stacks is None else self._stacks.ask(pid)
        with suppress(psutil.Error):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                where += " (it is stopped, as by SIGSTOP or a debugger)"
        self.process.kill()
        self._cause = f"killed after {silent_s:.0f} s without a sign of life."
        return WorkerHung(
            f"{self.name}: no sign of life in `{command}`{where} for {silent_s:.0f} s (limit {timeout_s:g} s); killed. "
            f"An env may hang; if it is only slow, raise {timeout_setting(starting=starting)}.",
            self.share.worker,
            f"Its stack:\n{stack}" if stack else "",
            f"hung{where}",
        )

    @property
    def where(self) -> str:
        """The envs that are running, as part of a sentence; empty if none is."""
        envs = envs_of(self._line)
        return f", at {envs}" if envs else ""

    def _memory(self) -> str:
        """The worker's memory in the last sample and the machine's free memory, as a sentence for the error."""
        used_mb, free_mb = int(self._line[MEMORY]) / 1024, psutil.virtual_memory().available / 2**20
        return f" It last used {used_mb:,.0f} MB (PSS); {free_mb:,.0f} MB are free now." if used_mb else ""

    def end(self, deadline: float) -> None:
        """Wait until `deadline`, then kill (workers ignore SIGTERM). Kill what its envs started; close our ends."""
        self.process.join(max(0.0, deadline - perf_counter()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join(1.0)
        kill_group(self.process.pid or 0)
        self.conn.close()
        self._guard_end.close()
        if self._stacks is not None:
            self._stacks.close()

    def release(self) -> None:
        """Close what multiprocessing keeps open of an ended process now, not at the next garbage collection."""
        with suppress(ValueError):  # the process has not ended, although it was killed
            self.process.close()


def first_ready(workers: Sequence[WorkerHandle], timeout_s: float) -> list[WorkerHandle]:
    """Block until one of these workers has sent a message or ended, or the timeout; returns those that have."""
    ready = DescriptorWatch([end for worker in workers for end in (worker.conn, worker.handles[1])]).wait(timeout_s)
    return [worker for worker in workers if not ready.isdisjoint(worker.handles)]


def last_ready(workers: Sequence[WorkerHandle], timeout_s: float) -> list[WorkerHandle]:
    """Block until the last of these workers has sent a message, or any has ended, or the timeout; returns all ready.

    For a driver that waits for all of them. If the first finished worker woke the driver, the driver would take the
    core of a worker that is still busy. The last worker's core is the driver's own (`system.wait_affinity`).
    """
    DescriptorWatch([*(worker.handles[1] for worker in workers), workers[-1].conn]).wait(timeout_s)
    return [worker for worker in workers if worker.heard.wait(0.0)]


class HangDetector:
    """Measures how long each worker has been silent: since its last heartbeat, or since its call was submitted.

    Args:
        heartbeat: [workers] heartbeat counters in shared memory.
        start_timeout_s: Longest silence before the first heartbeat, and in calls that make or first reset envs.
        step_timeout_s: Longest silence otherwise.
    """

    def __init__(self, heartbeat: NDArray[np.int64], start_timeout_s: float, step_timeout_s: float) -> None:
        self._heartbeat, self._start_s, self._step_s = heartbeat, start_timeout_s, step_timeout_s
        self.shortest_s = min(start_timeout_s, step_timeout_s)
        self._beat = heartbeat.copy()
        self._moved = np.full(len(heartbeat), perf_counter())
        self._warned = np.zeros(len(heartbeat), np.bool_)

    def begin(self, worker: int) -> None:
        """Restart the measurement for a worker that was idle."""
        self._moved[worker] = perf_counter()
        self._warned[worker] = False

    def check(self, waiting: Iterable[tuple[WorkerHandle, str]]) -> None:
        """Warn about workers that have been silent for long, and kill one that has been for too long.

        Args:
            waiting: Busy workers, each with the name of its call.

        Raises:
            WorkerHung: A worker was silent for longer than its timeout, and was killed.
        """
        now = perf_counter()
        moved = self._heartbeat != self._beat
        self._moved[moved], self._warned[moved] = now, False
        self._beat[:] = self._heartbeat
        for worker, command in waiting:
            number = worker.share.worker
            silent_s = now - self._moved[number]
            starting = command in STARTING or not self._beat[number]
            timeout_s = self._start_s if starting else self._step_s
            if silent_s > timeout_s:
                raise worker.hung(command, silent_s, timeout_s, starting=starting)
            if silent_s > min(WARN_AFTER_S, timeout_s / 2) and not self._warned[number]:
                self._warned[number] = True
                _log.warning(
                    "%s: no sign of life in `%s`%s for %.0f s; it is killed after %g s (%s).",
                    worker.name, command, worker.where, silent_s, timeout_s, timeout_setting(starting=starting),
                )  # fmt: skip


def _limit_send_time(conn: Any) -> None:
    """Set a send timeout: a stopped worker reads nothing, and sending a long message to it would block for ever."""
    if sys.platform != "win32":
        pipe = socket.socket(fileno=os.dup(conn.fileno()))
        try:
            pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))
        finally:
            pipe.close()


def timeout_setting(*, starting: bool) -> str:
    """Return the name of the setting that limits a start, or a step: from Python, and as a flag."""
    name = "start_timeout_s" if starting else "env_timeout_s"
    return f"{name} (on the command line --{name.replace('_', '-')})"


def describe_exit(code: int | None) -> str:
    """Return an exit code as text."""
    if code is None:
        return "it does not answer, but the process still runs."
    if code == -signal.SIGKILL:
        return "killed by SIGKILL. Often the kernel's out-of-memory killer: look at `dmesg`, use fewer envs."
    if code < 0:
        return f"killed by {signal.Signals(-code).name}. A crash in native code."
    # If the fork server was killed, multiprocessing reports 255 for its children.
    server = ", or the fork server was killed" if code == 255 else ""
    return f"it ended with exit code {code}. Something in the env called exit{server}."

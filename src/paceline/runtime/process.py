"""Worker processes on this machine.

    driver ──socketpair── worker 0: groups 0..3 ─┐
           ──socketpair── worker 1: groups 4..7 ─┴─ arena (mapped by all)

The driver waits on the pipes *and* the process sentinels at once, and looks at every worker's heartbeat: a
worker may fail, but it may not vanish.
"""

from __future__ import annotations

import atexit
import multiprocessing
import select
import signal
import types
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paceline.errors import ConfigError, WorkerDied, WorkerError, WorkerHung
from paceline.memory.shared import Arena, Field
from paceline.runtime import threads, tickets
from paceline.runtime.forkserver import StartMethod, child_environment, default_start_method, start_fork_server
from paceline.runtime.protocol import Program, Share, shares
from paceline.runtime.worker import WorkerOrder, worker_main

CLOSE_TIMEOUT_S = 5.0
POLL_S = 1.0
"""How often a wait looks at heartbeats."""


def heartbeat_field(workers: int) -> Field:
    """A counter per worker, each on a cache line of its own."""
    return Field.of("heartbeat", (max(1, workers), 8), np.int64)


class ProcessRuntime:
    """W worker processes, each with one job over its share of the groups."""

    def __init__(
        self,
        program: Program,
        arena: Arena,
        groups: int,
        num_workers: int,
        *,
        start_method: StartMethod | None = None,
        preload: Sequence[str] = (),
        cores: list[int] | None = None,
        start_timeout_s: float = 120.0,
        step_timeout_s: float = 60.0,
        hand: Callable[[int], None] | None = None,
    ) -> None:
        """Start the workers and wait until each has built its job.

        Args:
            program: Builds a worker's job.
            arena: Shared memory; holds `heartbeat_field(num_workers)`.
            groups: Groups to share out.
            num_workers: Processes to start.
            start_method: How; None for the platform's default.
            preload: Modules the fork server imports once for all: a worker then starts in hundredths of a second.
            cores: Cores to pin workers to, in turn.
            start_timeout_s: How long building a job, and then its first heartbeat, may take.
            step_timeout_s: How long a worker may go without a further heartbeat.
            hand: Does an item of `work` right here; None leaves them all to the workers.
        """
        self.num_workers = num_workers
        self._start_timeout_s, self._step_timeout_s = start_timeout_s, step_timeout_s
        self._heartbeat: NDArray[np.int64] = arena["heartbeat"][:, 0]
        self._workers: list[_Worker] = []
        self._tickets: tickets.Tickets | None = None
        self._closed = False
        self._hand = hand
        self._asked = ""
        method = start_method or default_start_method()
        packed = pack(program)
        # multiprocessing ends its daemons at exit by a SIGTERM, which workers leave to the driver, and waits for ever.
        atexit.register(_close_forgotten, weakref.ref(self))
        try:
            if method == "forkserver":
                start_fork_server(preload)
            if tickets.AVAILABLE:
                self._tickets = tickets.Tickets(multiprocessing.get_context(method))
            # With the driver's own hand, this many keep every core busy; more would only take turns.
            hands = num_workers if hand is None else max(1, threads.core_budget() - 1)
            with child_environment():
                for share in shares(groups, num_workers):
                    core = cores[share.worker % len(cores)] if cores else None
                    theirs = self._tickets.theirs if self._tickets and share.worker < hands else None
                    foreign = [end for other in self._workers for end in other.ours]
                    foreign += self._tickets.ours if self._tickets else ()
                    self._workers.append(_Worker(method, share, packed, arena, core, theirs, foreign))
            self._gather(self._workers, "start")
            if self._tickets is not None:
                self._tickets.started()
                self._watch(self._tickets)
        except BaseException:
            self.close()
            raise

    def run(self, command: str, *args: Any) -> list[Any]:
        """Send the command to all, wait for all."""
        self.start(command, *args)
        return self.finish()

    def start(self, command: str, *args: Any) -> None:
        """Send the command to all."""
        self._send(self._workers, command, [args] * len(self._workers))
        self._asked = command

    def finish(self) -> list[Any]:
        """Wait for all."""
        command, self._asked = self._asked, ""
        return self._gather(self._workers, command)

    def work(self, count: int) -> None:
        """Offer the items as tickets, do some by hand, and wait until all are done."""
        if self._tickets is None and self._asked:
            # Workers are busy, and an answer to this could not be told from one to the command.
            if self._hand is None:
                raise WorkerError(
                    f"work: needs a hand of the driver's own while `{self._asked}` is under way. Give one."
                )
            for own in range(count):
                self._hand(own)
            return
        if self._tickets is None:
            for first in range(0, count, self.num_workers):
                items = range(first, min(count, first + self.num_workers))
                self._send(self._workers[: len(items)], "work", [(item,) for item in items])
                self._gather(self._workers[: len(items)], "work")
            return
        self._tickets.put(count)
        while self._hand is not None and (item := self._tickets.take()) is not None:
            self._hand(item)
            count -= 1
        # While a command is under way its answers wait in the pipes: then only the death of a worker counts.
        poll = self._deaths if self._asked else self._failures
        moved = perf_counter()
        while count:
            ready = {fd for fd, _ in tickets.linger(poll) or poll.poll(1000 * POLL_S)}
            if self._tickets.done_fd in ready:
                count -= self._tickets.finished(count)
                ready.remove(self._tickets.done_fd)
                moved = perf_counter()
            for worker in self._workers:
                if count and not ready.isdisjoint((worker.conn.fileno(), worker.process.sentinel)):
                    worker.receive(self._asked or "work")
                    raise worker.died("work")  # it had answered the command, and nobody replies to a ticket
            if count and perf_counter() - moved > self._step_timeout_s:
                raise WorkerHung(
                    f"workers: {count} pieces of `work` are not done and nothing was for {self._step_timeout_s:g} s. "
                    "If a minibatch takes that long here, raise --env-timeout-s or lower --batch-size."
                )

    def _send(self, asked: list[_Worker], command: str, args: list[tuple[Any, ...]]) -> None:
        for worker, arguments in zip(asked, args, strict=True):
            try:
                worker.conn.send((command, arguments))
            except OSError:
                raise worker.died(command) from None

    def pids(self) -> list[int]:
        """Process ids, in worker order."""
        return [worker.process.pid or 0 for worker in self._workers]

    def close(self) -> None:
        """Ask, then kill. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for worker in self._workers:
            with suppress(OSError):
                worker.conn.send(("close", ()))
        deadline = perf_counter() + CLOSE_TIMEOUT_S / 2
        for worker in self._workers:
            worker.end(deadline)
        if self._tickets is not None:
            self._tickets.close()

    def __del__(self) -> None:
        self.close()

    def _watch(self, offered: tickets.Tickets) -> None:
        """All that a wait for tickets listens to, with and without what workers say."""
        self._failures, self._deaths = select.poll(), select.poll()
        for poll in (self._failures, self._deaths):
            poll.register(offered.done_fd, select.POLLIN)
            for worker in self._workers:
                poll.register(worker.process.sentinel, select.POLLIN)
        for worker in self._workers:
            self._failures.register(worker.conn.fileno(), select.POLLIN)

    def _gather(self, asked: list[_Worker], command: str) -> list[Any]:
        """One reply from each worker asked, which may take `step_timeout_s` since its last heartbeat.

        Until its first one, which ends the first reset, it may take `start_timeout_s`.
        """
        results: dict[int, Any] = {}
        waiting = {worker.share.worker: worker for worker in asked}
        patience = _Patience(self._heartbeat, self._start_timeout_s, self._step_timeout_s)
        while waiting:
            by_handle: dict[Any, _Worker] = {}
            for worker in waiting.values():
                by_handle[worker.conn] = by_handle[worker.process.sentinel] = worker
            ready = connection.wait(list(by_handle), timeout=POLL_S)
            for worker in {by_handle[handle].share.worker: by_handle[handle] for handle in ready}.values():
                results[worker.share.worker] = worker.receive(command)
                del waiting[worker.share.worker]
            patience.check(list(waiting.values()), command)
        return [results[worker.share.worker] for worker in asked]


class _Patience:
    """How long each worker has been silent, since its last heartbeat or since the wait began."""

    def __init__(self, heartbeat: NDArray[np.int64], start_timeout_s: float, step_timeout_s: float) -> None:
        self._heartbeat, self._start_s, self._step_s = heartbeat, start_timeout_s, step_timeout_s
        self._beat = heartbeat.copy()
        self._moved = np.full(len(heartbeat), perf_counter())

    def check(self, waiting: Sequence[_Worker], command: str) -> None:
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


class _Worker:
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
    ) -> None:
        ctx: Any = multiprocessing.get_context(method)
        self.share = share
        self.conn, theirs = ctx.Pipe()
        guard, self._alive = ctx.Pipe(duplex=False)  # the driver holds the write end for life and writes nothing
        order = WorkerOrder(share, program, arena, theirs, guard, theirs_tickets, core)
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
    def name(self) -> str:
        """How messages call it."""
        last = self.share.first_group + self.share.groups - 1
        return f"worker {self.share.worker} (pid {self.process.pid}, groups {self.share.first_group}-{last})"

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
        return WorkerDied(f"{self.name} ended in `{command}`: {describe_exit(self.process.exitcode)}")

    def end(self, deadline: float) -> None:
        """Wait until `deadline`, then kill (workers leave SIGTERM to the driver); close our ends."""
        self.process.join(max(0.0, deadline - perf_counter()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join(1.0)
        self.conn.close()
        self._alive.close()


def _close_forgotten(runtime: weakref.ref[ProcessRuntime]) -> None:
    if (forgotten := runtime()) is not None:
        forgotten.close()


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


def pack(program: Program) -> bytes:
    """The program as bytes.

    Raises:
        ConfigError: Something in it cannot be pickled; names the attribute where it can be found.
    """
    try:
        packed: bytes = cloudpickle.dumps(program)
    except Exception as error:
        culprit = _unpicklable(program)
        raise ConfigError(
            f"{culprit}: cannot be sent to workers ({type(error).__name__}: {error}). "
            "Create it inside the env function instead of capturing it, or use --num-workers 0."
        ) from error
    return packed


def _unpicklable(value: Any, path: str = "program", depth: int = 0) -> str:
    """The path of the first part of `value` that does not pickle by itself."""
    parts: dict[str, Any] = {}
    if isinstance(value, dict):
        parts = {f"[{key!r}]": item for key, item in value.items()}
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        parts = {
            f" captured {name!r}": cell.cell_contents for name, cell in zip(names, value.__closure__ or (), strict=True)
        }
        # Globals of a script's own functions travel by value too.
        used = value.__code__.co_names
        parts |= {f" global {name!r}": value.__globals__[name] for name in used if name in value.__globals__}
    elif hasattr(value, "__dict__"):
        parts = {f".{key}": item for key, item in vars(value).items()}
    elif hasattr(value, "__slots__"):
        parts = {f".{key}": getattr(value, key) for key in value.__slots__ if hasattr(value, key)}
    if depth < 6:
        for suffix, part in parts.items():
            try:
                cloudpickle.dumps(part)
            except Exception:
                return _unpicklable(part, path + suffix, depth + 1)
    return f"{path} ({type(value).__name__})"

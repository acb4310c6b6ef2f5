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
from collections import deque
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
from paceline.memory.lines import BEAT, CLAIM, STOP
from paceline.memory.shared import Arena
from paceline.runtime import threads, tickets
from paceline.runtime.forkserver import StartMethod, child_environment, default_start_method, start_fork_server
from paceline.runtime.protocol import Program, Share, shares
from paceline.runtime.worker import WorkerOrder, worker_main

CLOSE_TIMEOUT_S = 5.0
POLL_S = 1.0
"""How often a wait looks at heartbeats."""
GRACE_S = 1.0
"""How long to wait for pieces of work after a worker died, before doing them by hand: much longer than one takes."""
NOTHING: tuple[str, tuple[Any, ...]] = "", ()
"""No command is under way."""


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
        lines: NDArray[np.int64] = arena["heartbeat"]
        self._heartbeat, self._claims, self._stop = lines[:, BEAT], lines[:, CLAIM], lines[:, STOP]
        self._workers: list[_Worker] = []
        self._tickets: tickets.Tickets | None = None
        self._closed = False
        self._hand = hand
        self._asked: tuple[str, tuple[Any, ...]] = NOTHING
        self._results: dict[int, Any] = {}
        self._posted: list[deque[str]] = [deque() for _ in range(num_workers)]
        self._method = start_method or default_start_method()
        self._packed, self._arena, self._cores = pack(program), arena, cores
        # With the driver's own hand, this many keep every core busy; more would only take turns.
        self._hands = num_workers if hand is None else max(1, threads.core_budget() - 1)
        # multiprocessing ends its daemons at exit by a SIGTERM, which workers leave to the driver, and waits for ever.
        atexit.register(_close_forgotten, weakref.ref(self))
        try:
            if self._method == "forkserver":
                start_fork_server(preload)
            if tickets.AVAILABLE:
                self._tickets = tickets.Tickets(multiprocessing.get_context(self._method))
            for share in shares(groups, num_workers):
                self._workers.append(self._new(share))
            self._gather(self._workers, "start", {})
            self._watch()
        except BaseException:
            self.close()
            raise

    def _new(self, share: Share) -> _Worker:
        """Start the process of one worker; it answers when it has built its job."""
        core = self._cores[share.worker % len(self._cores)] if self._cores else None
        theirs = self._tickets.theirs if self._tickets and share.worker < self._hands else None
        foreign = [end for other in self._workers if other.share != share for end in other.ours]
        foreign += self._tickets.ours if self._tickets else ()
        with child_environment():
            return _Worker(self._method, share, self._packed, self._arena, core, theirs, foreign)

    def run(self, command: str, *args: Any) -> list[Any]:
        """Send the command to all, wait for all."""
        self.start(command, *args)
        return self.finish()

    def start(self, command: str, *args: Any) -> None:
        """Send the command to all; one that is gone is found by `finish`."""
        self._asked, self._results = (command, args), {}
        for worker in self._workers:
            worker.send(command, args)

    def finish(self) -> list[Any]:
        """Wait for all; what has arrived is kept while one that died is replaced."""
        self._gather(self._workers, self._asked[0], self._results)
        self._asked = NOTHING
        return [self._results[worker.share.worker] for worker in self._workers]

    def post(self, worker: int, command: str, *args: Any) -> None:
        """Send the command to one worker, which does what it was sent in order."""
        if not self._posted[worker]:
            self._patience.begin(worker)
        self._posted[worker].append(command)
        self._workers[worker].send(command, args)

    def take(self, timeout_s: float) -> list[tuple[int, Any]]:
        """Answers to what was posted, from whoever has one."""
        busy = [worker for worker in self._workers if self._posted[worker.share.worker]]
        handles = {handle: worker for worker in busy for handle in (worker.conn, worker.process.sentinel)}
        ready = connection.wait(list(handles), timeout=timeout_s)
        answers: list[tuple[int, Any]] = []
        for worker in {handles[handle].share.worker: handles[handle] for handle in ready}.values():
            number = worker.share.worker
            try:
                answers.append((number, worker.receive(self._posted[number][0])))
            except WorkerDied:
                if answers:
                    break  # what others said must not be lost, and the next call finds it dead as well
                raise
            self._posted[number].popleft()
            self._patience.begin(number)  # it may have said so long ago
        waiting = [worker for worker in busy if self._posted[worker.share.worker]]
        self._patience.check(waiting, "what was posted")
        return answers

    def respawn(self, worker: int, command: str, *args: Any) -> Any:
        """A new process with the same share; what was posted to the old one is forgotten."""
        old = self._workers[worker]
        old.end(perf_counter())
        self._posted[worker].clear()
        self._heartbeat[worker] = self._claims[worker] = 0
        new = self._workers[worker] = self._new(old.share)
        self._watch()
        self._gather([new], "start", {})
        first: dict[int, Any] = {}
        new.send(command, args)
        self._gather([new], command, first)
        if self._asked is not NOTHING and worker not in self._results:
            new.send(*self._asked)
        return first[worker]

    def work(self, count: int) -> None:
        """Offer the items as tickets, do some by hand, and wait until all are done."""
        if self._tickets is not None:
            self._offer(self._tickets, count)
        elif self._asked is NOTHING and not any(self._posted):
            for first in range(0, count, self.num_workers):
                items = range(first, min(count, first + self.num_workers))
                for worker, item in zip(self._workers, items, strict=False):
                    worker.send("work", (item,))
                self._gather(self._workers[: len(items)], "work", {})
        elif self._hand is not None:
            # Workers are busy, and an answer to this could not be told from one to the command.
            for own in range(count):
                self._hand(own)
        else:
            raise WorkerError("work: needs a hand of the driver's own while a command is under way. Give one.")

    def _offer(self, offered: tickets.Tickets, count: int) -> None:
        """Work by tickets. A worker's death costs a moment: by then the driver does by hand what it may have held."""
        pending = offered.put(count)
        while self._hand is not None and (item := offered.take()) is not None:
            self._hand(item)
            pending.discard(item)
        # While a command is under way its answers wait in the pipes: then only the death of a worker counts.
        poll = self._failures if self._asked is NOTHING else self._deaths
        moved, died = perf_counter(), False
        while pending:
            ready = {fd for fd, _ in tickets.linger(poll) or poll.poll(1000 * POLL_S)}
            if offered.done_fd in ready:
                pending -= offered.finished()
                ready.remove(offered.done_fd)
                moved = perf_counter()
            for worker in self._workers:
                if pending and not ready.isdisjoint(worker.handles):
                    self._look_into(worker)
                    died = True
            silent_s = perf_counter() - moved
            if died and self._hand is not None and silent_s > GRACE_S:
                for item in pending - self._held_by_the_living():
                    self._hand(item)
                    pending.discard(item)
            if pending and silent_s > self._step_timeout_s:
                raise WorkerHung(
                    f"workers: {len(pending)} pieces of `work` are not done and nothing was for "
                    f"{self._step_timeout_s:g} s. "
                    "If a minibatch takes that long here, raise --env-timeout-s or lower --batch-size."
                )

    def _held_by_the_living(self) -> set[int]:
        """Items that somebody is still at. A worker notes its claim at once, long before `GRACE_S` has passed."""
        claims = [int(self._claims[one.share.worker]) for one in self._workers if one.process.is_alive()]
        return {claim - 1 & tickets.MOST for claim in claims if claim}

    def _look_into(self, worker: _Worker) -> None:
        """What a worker said in the middle of `work`, where only errors are said; its death may be got over."""
        command = self._asked[0] or "work"
        try:
            worker.receive(command)
            raise worker.died("work")  # it had answered the command, and nobody replies to a ticket
        except WorkerDied:
            if self._hand is None:
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
        self._stop[:] = 1
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

    def _watch(self) -> None:
        """All that a wait for tickets listens to, with and without what workers say."""
        self._patience = _Patience(self._heartbeat, self._start_timeout_s, self._step_timeout_s)
        if self._tickets is None:
            return
        self._failures, self._deaths = select.poll(), select.poll()
        for poll in (self._failures, self._deaths):
            poll.register(self._tickets.done_fd, select.POLLIN)
            for worker in self._workers:
                poll.register(worker.process.sentinel, select.POLLIN)
        for worker in self._workers:
            self._failures.register(worker.conn.fileno(), select.POLLIN)

    def _gather(self, asked: list[_Worker], command: str, results: dict[int, Any]) -> None:
        """Put one reply of each worker asked into `results`, except of those whose reply is there already.

        It may take `step_timeout_s` since its last heartbeat; until its first one, which ends the first reset, it may
        take `start_timeout_s`.
        """
        waiting = {worker.share.worker: worker for worker in asked if worker.share.worker not in results}
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


class _Patience:
    """How long each worker has been silent, since its last heartbeat or since the wait began."""

    def __init__(self, heartbeat: NDArray[np.int64], start_timeout_s: float, step_timeout_s: float) -> None:
        self._heartbeat, self._start_s, self._step_s = heartbeat, start_timeout_s, step_timeout_s
        self._beat = heartbeat.copy()
        self._moved = np.full(len(heartbeat), perf_counter())

    def begin(self, worker: int) -> None:
        """It has rested, and begins now."""
        self._moved[worker] = perf_counter()

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
    def handles(self) -> tuple[int, int]:
        """What becomes readable when it says something or ends."""
        return self.conn.fileno(), self.process.sentinel

    @property
    def name(self) -> str:
        """How messages call it."""
        last = self.share.first_group + self.share.groups - 1
        return f"worker {self.share.worker} (pid {self.process.pid}, groups {self.share.first_group}-{last})"

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

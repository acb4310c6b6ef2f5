"""Worker processes on this machine.

    driver ──socketpair── worker 0: groups 0..3 ─┐
           ──socketpair── worker 1: groups 4..7 ─┴─ arena (mapped by all)

The driver waits on the pipes *and* the process sentinels at once, and looks at every worker's heartbeat: a
worker may fail, but it may not vanish.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import select
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import WorkerDied, WorkerError, WorkerHung, WorkerLost
from paceline.memory.lines import BEAT, CLAIM, STOP
from paceline.memory.shared import Arena
from paceline.runtime import threads, tickets
from paceline.runtime.bells import Linger, ProcessBells
from paceline.runtime.forkserver import StartMethod, child_environment, default_start_method, start_fork_server
from paceline.runtime.home import home, homes
from paceline.runtime.messages import packed
from paceline.runtime.pack import pack
from paceline.runtime.protocol import Program, Share, shares
from paceline.runtime.questions import Questions
from paceline.runtime.worker_handle import Patience, WorkerHandle, first_ready, last_ready

CLOSE_TIMEOUT_S = 5.0
POLL_S = 1.0
"""How often a wait looks at heartbeats."""
GRACE_S = 1.0
"""How long to wait for pieces of work after a worker died, before doing them by hand: much longer than one takes."""
NOTHING: tuple[str, tuple[Any, ...]] = "", ()
"""No command is under way."""


class ProcessRuntime:
    """W worker processes, each with one job over its share of the groups."""

    bytes_up = 0

    def __init__(
        self,
        program: Program,
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
        hand: Callable[[int], None] | None = None,
        bells: bool = False,
        unit: str = "groups",
        questions: Questions | None = None,
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
            hand: Does an item of `work` right here; None leaves them all to the workers.
            bells: Whether jobs can `serve`; `bells` then rings them.
            unit: What error texts call a group.
            questions: Where jobs can ask; a job then has `connect(asker)`.
            respawns: Whether the caller replaces workers that are lost. One that is lost while it starts is then
                reported by the first command, and not here.
        """
        self.num_workers = num_workers
        self._start_timeout_s, self._step_timeout_s = start_timeout_s, step_timeout_s
        lines: NDArray[np.int64] = arena["heartbeat"]
        self._lines, self._heartbeat, self._claims, self._stop = lines, lines[:, BEAT], lines[:, CLAIM], lines[:, STOP]
        self._patience = Patience(self._heartbeat, start_timeout_s, step_timeout_s)
        self._workers, self._hand = list[WorkerHandle](), hand
        self._tickets: tickets.Tickets | None = None
        self._bells: ProcessBells | None = None
        self._closed, self._unit, self._questions, self._at_home = False, unit, questions, ExitStack()
        self._asked: tuple[str, tuple[Any, ...]] = NOTHING
        self._results: dict[int, Any] = {}
        self._posted: list[deque[str]] = [deque() for _ in range(num_workers)]
        self._losses: deque[WorkerLost] = deque()  # that somebody has yet to be told of
        self._method = start_method or default_start_method()
        self._packed, self._arena, self._cores = pack(program), arena, cores
        self._homes = homes(num_workers) if take_turns and cores is None else [None] * num_workers
        self._home = home(self._homes[-1])
        # With the driver's own hand, this many keep every core busy; more would only take turns.
        self._hands = num_workers if hand is None else max(1, threads.core_budget() - 1)
        _OPEN.add(self)
        try:
            if self._method == "forkserver":
                start_fork_server(preload)
            elif self._method == "spawn" and os.name == "posix":
                resource_tracker.ensure_running()  # otherwise inside `child_environment`, where it unblocks Ctrl-C
            if bells:
                self._bells = ProcessBells(arena, num_workers, Linger.fitting(num_workers, threads.core_budget()))
            if tickets.AVAILABLE:
                self._tickets = tickets.Tickets(multiprocessing.get_context(self._method))
            for share in shares(groups, num_workers, first_group):
                self._workers.append(self._new(replace(share, helps=not self._tickets or share.worker < self._hands)))
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
            bell = self._bells.theirs(share.worker) if self._bells else None
            asking = self._questions.theirs(share.worker) if self._questions else None
            order = (self._packed, self._arena, core, theirs, foreign, bell, self._unit, asking)
            return WorkerHandle(self._method, share, *order, self._homes[share.worker])

    def _await_start(self, respawns: bool) -> None:
        started: dict[int, Any] = {}
        patience = Patience(self._heartbeat, self._start_timeout_s, self._step_timeout_s)
        while len(started) < self.num_workers:
            try:
                self._gather(self._workers, "start", started, patience)
            except WorkerLost as loss:
                if not respawns:
                    raise
                started[loss.worker] = None
                self._losses.append(loss)

    @property
    def bells(self) -> ProcessBells:
        """Rings the workers, after `start("serve")`; only of a runtime that was made with bells."""
        if self._bells is None:
            raise RuntimeError("bells: this runtime was made without. Pass bells=True.")
        return self._bells

    def run(self, command: str, *args: Any) -> list[Any]:
        """Send the command to all, wait for all."""
        self.start(command, *args)
        return self.finish()

    def start(self, command: str, *args: Any) -> None:
        """Send the command to all; one that is gone is found by `finish`."""
        self._asked, self._results = (command, args), {}
        message = packed(*self._asked)
        # Home before anybody is woken: moving there later, it would find a worker at work and be put off for a slice.
        self._at_home.close()
        self._at_home.enter_context(self._home)
        for worker in self._workers:
            worker.send_packed(message)
            self._patience.begin(worker.share.worker)

    def finish(self) -> list[Any]:
        """Wait for all; what has arrived is kept while one that died is replaced."""
        with self._at_home:
            self._raise_loss()
            self._gather(self._workers, self._asked[0], self._results, self._patience)
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
        self._raise_loss()
        busy = [worker for worker in self._workers if self._posted[worker.share.worker]]
        answers: list[tuple[int, Any]] = []
        for worker in first_ready(busy, timeout_s):
            number = worker.share.worker
            try:
                answers.append((number, worker.receive(self._posted[number][0])))
            except WorkerDied as loss:
                # Neither what others said may be lost, nor this: where they always say something, nobody looks again.
                self._losses.append(loss)
                continue
            self._posted[number].popleft()
            self._patience.begin(number)  # it may have said so long ago
        lost = {loss.worker for loss in self._losses}
        waiting = [worker for worker in busy if self._posted[worker.share.worker] and worker.share.worker not in lost]
        try:
            self._patience.check(waiting, self._posted[waiting[0].share.worker][0] if waiting else "")
        except WorkerHung as loss:
            self._losses.append(loss)
        if not answers:
            self._raise_loss()
        return answers

    def _raise_loss(self) -> None:
        if self._losses:
            raise self._losses.popleft()

    def respawn(self, worker: int, command: str, *args: Any) -> Any:
        """A new process with the same share; what was posted to the old one is forgotten."""
        old = self._workers[worker]
        old.end(perf_counter())
        self._posted[worker].clear()
        self._lines[worker] = 0
        if self._bells is not None:
            self._bells.forget(worker)
        new = self._workers[worker] = self._new(old.share)
        old.let_go()
        self._watch()
        self._gather([new], "start", {})
        first: dict[int, Any] = {}
        new.send(command, args)
        self._gather([new], command, first)
        if self._asked is not NOTHING and worker not in self._results:
            new.send(*self._asked)
            self._patience.begin(worker)
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
        while pending and self._hand is not None and (item := offered.take()) is not None:
            self._hand(item)
            pending -= {item, *offered.finished()}  # mostly all there is, and nothing left to ask for
        # While a command is under way its answers wait in the pipes: then only the death of a worker counts.
        poll = self._failures if self._asked is NOTHING else self._deaths
        moved, died = perf_counter(), False
        while pending:
            ready = {fd for fd, _ in tickets.wait(poll, self._home, timeout_s=POLL_S)}
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
                # A worker notes its claim at once, long before this.
                for item in pending - set(self._holders(offered)):
                    self._hand(item)
                    pending.discard(item)
            if pending and silent_s > self._step_timeout_s and self._end_holders(offered, pending, silent_s):
                died, moved = True, perf_counter()
            elif pending and silent_s > self._step_timeout_s:
                raise WorkerHung(
                    f"workers: {len(pending)} pieces of `work` are not done and nothing was for "
                    f"{self._step_timeout_s:g} s. "
                    "If a minibatch takes that long here, raise --env-timeout-s or lower --batch-size."
                )

    def _holders(self, offered: tickets.Tickets) -> dict[int, WorkerHandle]:
        """Items that somebody is still at, and who."""
        alive = [(offered.claimed(int(self._claims[one.share.worker])), one) for one in self._workers if one.alive]
        return {item: one for item, one in alive if item is not None}

    def _end_holders(self, offered: tickets.Tickets, pending: set[int], silent_s: float) -> bool:
        """Kill whoever hangs in a piece of work, where the driver can do it instead; whether there was one.

        The next command finds them dead, and says why.
        """
        hanging = [one for item, one in self._holders(offered).items() if item in pending and self._hand is not None]
        for worker in hanging:
            worker.hung("work", silent_s, self._step_timeout_s)
        return bool(hanging)

    def _look_into(self, worker: WorkerHandle) -> None:
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
        self._at_home.close()
        self._stop[:] = 1
        try:
            for worker in self._workers:
                worker.send("close", ())
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
        if self._bells is not None:
            self._bells.close()

    def __del__(self) -> None:
        self.close()

    def _watch(self) -> None:
        """All that a wait for tickets listens to, with and without what workers say."""
        if self._bells is not None:
            workers, patience = self._workers, self._patience

            def check(numbers: list[int], doing: str) -> None:
                patience.check([workers[number] for number in numbers], doing)

            self._bells.watch(workers, patience.begin, check)
        if self._tickets is None:
            return
        self._failures, self._deaths = select.poll(), select.poll()
        for poll in (self._failures, self._deaths):
            poll.register(self._tickets.done_fd, select.POLLIN)
            for worker in self._workers:
                poll.register(worker.handles[1], select.POLLIN)
        for worker in self._workers:
            self._failures.register(worker.handles[0], select.POLLIN)

    def _gather(
        self, asked: list[WorkerHandle], command: str, results: dict[int, Any], patience: Patience | None = None
    ) -> None:
        """Put one reply of each worker asked into `results`, except of those whose reply is there already.

        It may take `step_timeout_s` since its last heartbeat; while envs are made and first reset, `start_timeout_s`.
        """
        waiting = {worker.share.worker: worker for worker in asked if worker.share.worker not in results}
        patience = patience or Patience(self._heartbeat, self._start_timeout_s, self._step_timeout_s)
        while waiting:
            for worker in last_ready(list(waiting.values()), min(POLL_S, patience.shortest_s / 4)):
                results[worker.share.worker] = worker.receive(command)
                del waiting[worker.share.worker]
            if waiting:
                patience.check(list(waiting.values()), command)


_OPEN: weakref.WeakSet[ProcessRuntime] = weakref.WeakSet()


@atexit.register
def _close_forgotten() -> None:
    """Before multiprocessing ends its daemons by SIGTERM, which workers leave to the driver, and waits for ever."""
    for runtime in list(_OPEN):
        runtime.close()

"""A machine's part of a run that spans several: an arena of its own, worker processes, and what it tells the driver.

    driver  --command, weights-->  crew  --command-->  workers          the same process runtime as on one machine
            <--one buffer--------        <--index----

Nothing here knows how messages travel. Whoever asks does what is asked, until something is posted: from then on one
thread does all that touches the workers, and listens to them; whoever has something to ask puts it into the inbox.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from paceline.errors import PacelineError, WorkerLost
from paceline.memory.shared import Arena
from paceline.memory.worker_status import BEAT
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.messages import Call
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Job, Reply, Share, shares
from paceline.runtime.ray.transfer import Did, Held, Transfer, pack, unload

SLICE_S = 0.005
"""How long to listen to workers that do what was posted before looking into the inbox again."""

Loads = Mapping[str, tuple[Hashable, Sequence[NDArray[Any]]]]
"""What to tell workers, by name: which it is, and its arrays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodePoolSetup:
    """All that a crew is started with."""

    first_group: int
    groups: int
    workers: int
    start_method: StartMethod | None
    preload: tuple[str, ...]
    start_timeout_s: float
    step_timeout_s: float


@dataclass(frozen=True, slots=True)
class Said:
    """What a crew answers. Errors travel as text: the exception itself may not survive it."""

    kind: Literal["ok", "died", "error"]
    worker: int = 0
    """Of this crew: who answers, or died."""
    value: Any = None
    """Results, or the text of the error."""
    parcel: NDArray[np.uint8] | None = None


class NodePool:
    """The workers of one machine.

    Args:
        freight: A cloudpickled `Transfer`, so that lambdas and classes of the user's script travel too.
        order: What they are to be.
    """

    def __init__(self, transfer: bytes, order: NodePoolSetup) -> None:
        self._freight: Transfer[Job] = cloudpickle.loads(transfer)
        self._shares = shares(order.groups, order.workers, order.first_group)
        self._held = Held(order.first_group, order.groups)
        self._arena = Arena.create(self._freight.fields(self._held, order.workers))
        self._known: dict[str, Hashable] = {}
        self._posted: dict[Reply[object], tuple[Call, tuple[Any, ...]]] = {}  # in the order of their posting
        self._asked: tuple[Call, tuple[Any, ...]] | None = None  # of all workers
        self._replies: list[Reply[object]] = []  # to that, in worker order
        self._inbox: queue.SimpleQueue[tuple[Future[Said] | None, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._outbox: deque[Said] = deque()
        self._heard = threading.Condition()
        self._stopped = False  # somebody died, or worse: nothing is heard until the driver has done something about it
        try:
            self._runtime: ProcessRuntime[Job] = ProcessRuntime(
                self._freight.program(self._held),
                self._arena,
                order.groups,
                order.workers,
                first_group=order.first_group,
                start_method=order.start_method,
                preload=order.preload,
                start_timeout_s=order.start_timeout_s,
                step_timeout_s=order.step_timeout_s,
                respawns=True,
            )
        except BaseException:
            self._arena.close()
            raise
        self._thread: threading.Thread | None = None

    # What the driver asks for, one after another; only `hear`, `beats` and `pids` may be called meanwhile.

    def do(self, call: Call, args: tuple[Any, ...], loads: Loads) -> Said:
        """Have all workers execute a call, and wait for them."""
        return self._ask(lambda: self._do(call, args, loads))

    def finish(self) -> Said:
        """Go on after workers were replaced: those execute the call of `do` again. Waits for all."""
        return self._ask(self._finish)

    def respawn(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> Said:
        """Replace a worker that died; the new one executes the call first, and this waits for it."""
        return self._ask(lambda: self._respawn(worker, call, args, loads))

    def tell(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> Said:
        """Have one worker execute a call, and wait for it."""
        return self._ask(lambda: self._tell(worker, call, args, loads))

    def post(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> None:
        """Have one worker execute a call after what was posted to it before. Does not wait."""
        self._note(lambda: self._post(worker, call, args, loads))

    def renew(self, loads: Loads) -> None:
        """Tell workers something, whatever they are at. Does not wait."""
        self._note(lambda: self._take_in(loads, self._shares))

    def hear(self, timeout_s: float) -> list[Said]:
        """What was said to what was posted; waits so long for something."""
        with self._heard:
            self._heard.wait_for(lambda: self._outbox, timeout_s)
            said = list(self._outbox)
            self._outbox.clear()
        return said

    def beats(self) -> int:
        """A number that moves while workers do."""
        return int(self._arena["heartbeat"][:, BEAT].sum())

    def pids(self) -> list[int]:
        """Of the workers."""
        return self._runtime.pids()

    def close(self) -> None:
        """End the workers."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join(10.0)
        self._runtime.close()
        self._arena.close()

    def _note(self, what: Callable[[], None]) -> None:
        """Have it done in its turn, by a thread that listens to workers from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="paceline-crew", daemon=True)
            self._thread.start()
        self._inbox.put((None, what))

    def _ask(self, what: Callable[[], Said]) -> Said:
        """Have it done, and wait: right here while nobody listens, since every change of threads takes time."""
        if self._thread is None:
            try:
                return what()
            except Exception as error:
                return failure(error)
        answer: Future[Said] = Future()
        self._inbox.put((answer, what))
        return answer.result()

    # What is done to workers.

    def _serve(self) -> None:
        while True:
            listening = bool(self._posted) and not self._stopped
            try:
                asked = self._inbox.get(block=not listening)
            except queue.Empty:
                self._listen()
                continue
            if asked is None:
                return
            answer, what = asked
            try:
                said = what()
                if answer is not None:
                    answer.set_result(said)
            except Exception as error:
                if answer is not None:
                    answer.set_result(failure(error))
                else:
                    self._say(failure(error))

    def _listen(self) -> None:
        try:
            for reply in self._runtime.wait(list(self._posted), all=False, timeout_s=SLICE_S):
                self._answered(reply)
        except Exception as error:
            self._stopped = True
            self._say(failure(error))

    def _answered(self, reply: Reply[object]) -> None:
        """Tell the driver the result of something that was posted."""
        call, args = self._posted.pop(reply)
        self._say(self._said(reply, call, args))

    def _said(self, reply: Reply[object], call: Call, args: tuple[Any, ...]) -> Said:
        """A worker's result, with what it wrote."""
        worker, result = reply.worker, reply.result()
        return Said("ok", worker, result, self._parcel(call, args, [result], self._shares[worker : worker + 1]))

    def _say(self, said: Said) -> None:
        with self._heard:
            self._outbox.append(said)
            self._heard.notify_all()

    def _do(self, call: Call, args: tuple[Any, ...], loads: Loads) -> Said:
        self._take_in(loads, self._shares)
        self._asked = call, args
        self._replies = self._runtime.submit_all(call, *args)
        return self._finish()

    def _finish(self) -> Said:
        if self._asked is None:
            raise RuntimeError("finish: nothing was asked of all workers.")
        call, args = self._asked
        for worker, reply in enumerate(self._replies):
            if reply.forgotten:
                self._replies[worker] = self._runtime.submit(worker, call, *args)
        results = [reply.result() for reply in self._runtime.wait(self._replies, all=True)]
        return Said("ok", value=results, parcel=self._parcel(call, args, results, self._shares))

    def _respawn(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> Said:
        mine = self._shares[worker : worker + 1]
        self._take_in(loads, mine)
        self._posted = {reply: what for reply, what in self._posted.items() if reply.worker != worker}
        result = self._runtime.respawn(worker, call, *args)
        self._stopped = False
        return Said("ok", worker, result, self._parcel(call, args, [result], mine))

    def _tell(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> Said:
        self._take_in(loads, self._shares[worker : worker + 1])
        told = self._runtime.submit(worker, call, *args)
        while not told.done:
            for reply in self._runtime.wait([told, *self._posted], all=False, timeout_s=1.0):
                if reply is not told:
                    self._answered(reply)
        return self._said(told, call, args)

    def _post(self, worker: int, call: Call, args: tuple[Any, ...], loads: Loads) -> None:
        self._take_in(loads, self._shares[worker : worker + 1])
        self._posted[self._runtime.submit(worker, call, *args)] = call, args

    def _take_in(self, loads: Loads, pool: Sequence[Share]) -> None:
        for name, (token, parts) in loads.items():
            if token is None or self._known.get(name) != token:
                unload(parts, self._freight.down(name, self._arena, self._held, pool))
                self._known[name] = token

    def _parcel(
        self, call: Call, args: tuple[Any, ...], results: Sequence[Any], pool: Sequence[Share]
    ) -> NDArray[np.uint8]:
        return pack(self._freight.up(Did(call.__name__, args, results), self._arena, self._held, pool))


def failure(error: BaseException) -> Said:
    """What to answer instead."""
    if isinstance(error, WorkerLost):  # dead, or hung and killed: it can be replaced
        return Said("died", error.worker, str(error))
    text = f"{type(error).__name__} (its text could not be made)"
    with suppress(Exception):
        text = str(error) if isinstance(error, PacelineError) else f"{type(error).__name__}: {error}"
    return Said("error", value=text)

"""What worker processes have yet to answer, and how the driver waits for it.

A worker answers in the order of its calls, so that a result needs no number: it belongs to the first reply pending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter

from paceline.errors import WorkerDied, WorkerHung, WorkerLost
from paceline.runtime.protocol import Reply
from paceline.runtime.worker_handle import HangDetector, WorkerHandle, first_ready, last_ready

POLL_S = 1.0
"""How often a wait looks at heartbeats."""


class PendingReplies:
    """The replies of all workers that are not done.

    Args:
        workers: The driver's ends, in order. The owner replaces entries of this list; it is read at every wait.
        patience: When each worker last showed a sign of life.
        count: How many workers there will be.
    """

    def __init__(self, workers: Sequence[WorkerHandle], hang_detector: HangDetector, count: int) -> None:
        self._workers, self._hang_detector = workers, hang_detector
        self._pending: list[deque[Reply[object]]] = [deque() for _ in range(count)]
        self._losses: deque[WorkerLost] = deque()  # that no wait has raised yet

    def __bool__(self) -> bool:
        """Whether some worker has yet to answer."""
        return any(self._pending)

    def add(self, reply: Reply[object]) -> None:
        """Expect a result. Its worker's deadline begins now, if it has nothing else to do."""
        pending = self._pending[reply.worker]
        if not pending:
            self._hang_detector.begin(reply.worker)
        pending.append(reply)

    def name(self, worker: int, otherwise: str) -> str:
        """The name of the call that a worker is at."""
        pending = self._pending[worker]
        return pending[0].name if pending else otherwise

    def forget(self, worker: int) -> None:
        """It is replaced: nothing that was submitted to it will be answered."""
        for reply in self._pending[worker]:
            reply.forgotten = True
        self._pending[worker].clear()

    def note(self, loss: WorkerLost) -> None:
        """Have the next wait raise this."""
        self._losses.append(loss)

    def raise_loss(self) -> None:
        """Raise the first loss that was noted and not raised."""
        if self._losses:
            raise self._losses.popleft()

    def wait_all(self, replies: Sequence[Reply[object]], timeout_s: float) -> None:
        """Receive until these are done. Raises at once what goes wrong; what has arrived by then is kept.

        A worker may take `step_timeout_s` since its last heartbeat; while envs are made and first reset,
        `start_timeout_s`.
        """
        end, look_s = perf_counter() + timeout_s, min(POLL_S, self._hang_detector.shortest_s / 4)
        busy = self._busy(replies)
        while busy:
            left_s = end - perf_counter()
            for worker in last_ready(busy, max(0.0, min(look_s, left_s))):
                self._receive(worker)
            if busy := self._busy(replies):
                self._check(busy)
                if left_s <= 0.0:
                    return

    def wait_any(self, replies: Sequence[Reply[object]], timeout_s: float) -> None:
        """Receive at most one result of each worker. A loss is raised if none is done, or else by the next wait."""
        busy = self._busy(replies)
        for worker in first_ready(busy, 0.0 if any(reply.done for reply in replies) else timeout_s):
            try:
                self._receive(worker)
            except WorkerDied as loss:
                # Kept for the next wait: where other workers always have results, nobody looks at this one again.
                self._losses.append(loss)
        lost = {loss.worker for loss in self._losses}
        try:
            self._check([worker for worker in self._busy(replies) if worker.share.worker not in lost])
        except WorkerHung as loss:
            self._losses.append(loss)
        if not any(reply.done for reply in replies):
            self.raise_loss()

    def _busy(self, replies: Sequence[Reply[object]]) -> list[WorkerHandle]:
        """The workers that have not answered all of these, in order."""
        return [self._workers[number] for number in sorted({reply.worker for reply in replies if not reply.done})]

    def _receive(self, worker: WorkerHandle) -> None:
        """Take in the result of the first call that a worker has not answered. Raises what went wrong there."""
        number = worker.share.worker
        pending = self._pending[number]
        result = worker.receive(pending[0].name)
        pending.popleft().put(result)
        if pending:
            self._hang_detector.begin(number)  # it may have sent that long ago

    def _check(self, busy: Sequence[WorkerHandle]) -> None:
        """Raise WorkerHung for a worker that is silent for too long."""
        self._hang_detector.check([(worker, self._pending[worker.share.worker][0].name) for worker in busy])

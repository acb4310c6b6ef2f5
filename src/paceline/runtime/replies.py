"""Pending replies of worker processes, and how the driver waits for them.

A worker answers in the order of its calls. So results are not numbered: each belongs to the worker's first
pending reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter

from paceline.errors import WorkerDied, WorkerHung, WorkerLost
from paceline.runtime.protocol import Reply
from paceline.runtime.worker_handle import HangDetector, WorkerHandle, first_ready, last_ready

POLL_S = 1.0
"""How often a wait checks heartbeats."""


class PendingReplies:
    """The replies of all workers that are not done.

    Args:
        workers: The handles of the workers, in order. The owner fills this list and replaces entries of it later.
        hang_detector: Measures how long each worker has been silent.
        count: Number of workers.
    """

    def __init__(self, workers: Sequence[WorkerHandle], hang_detector: HangDetector, count: int) -> None:
        self._workers, self._hang_detector = workers, hang_detector
        self._pending: list[deque[Reply[object]]] = [deque() for _ in range(count)]
        self._losses: deque[WorkerLost] = deque()  # losses that no wait has raised yet

    def __bool__(self) -> bool:
        """Whether a reply is pending."""
        return any(self._pending)

    def add(self, reply: Reply[object]) -> None:
        """Expect a result. The deadline of a worker that was idle starts now."""
        pending = self._pending[reply.worker]
        if not pending:
            self._hang_detector.begin(reply.worker)
        pending.append(reply)

    def name(self, worker: int, default: str) -> str:
        """Return the name of the call that a worker is executing, or `default` if it is idle."""
        pending = self._pending[worker]
        return pending[0].name if pending else default

    def forget(self, worker: int) -> None:
        """Mark the pending replies of a worker that is replaced: they will never be done."""
        for reply in self._pending[worker]:
            reply.forgotten = True
        self._pending[worker].clear()

    def store_loss(self, loss: WorkerLost) -> None:
        """Store a loss, which the next wait raises."""
        self._losses.append(loss)

    def raise_loss(self) -> None:
        """Raise the first stored loss, if there is one."""
        if self._losses:
            raise self._losses.popleft()

    def wait_all(self, replies: Sequence[Reply[object]], timeout_s: float) -> None:
        """Receive results until these replies are done, or until the timeout.

        Raises the first failure at once; results received before stay in their replies. A worker may be silent for
        `step_timeout_s`, and for `start_timeout_s` while it makes and first resets its envs.
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
        """Block until one of these replies is done; receives at most one result of each worker.

        A loss is raised at once if no reply is done, and otherwise by the next wait.
        """
        busy = self._busy(replies)
        for worker in first_ready(busy, 0.0 if any(reply.done for reply in replies) else timeout_s):
            try:
                self._receive(worker)
            except WorkerDied as loss:
                # Stored for the next wait: if other workers always have results, no wait reads this pipe again.
                self._losses.append(loss)
        lost = {loss.worker for loss in self._losses}
        try:
            self._check([worker for worker in self._busy(replies) if worker.share.worker not in lost])
        except WorkerHung as loss:
            self._losses.append(loss)
        if not any(reply.done for reply in replies):
            self.raise_loss()

    def _busy(self, replies: Sequence[Reply[object]]) -> list[WorkerHandle]:
        """Return the workers whose replies are not all done, in order."""
        return [self._workers[number] for number in sorted({reply.worker for reply in replies if not reply.done})]

    def _receive(self, worker: WorkerHandle) -> None:
        """Receive the result of a worker's first pending call. Raises the error that the worker reports."""
        number = worker.share.worker
        pending = self._pending[number]
        result = worker.receive(pending[0].name)
        pending.popleft().put(result)
        if pending:
            # It may have sent this result long ago, so the deadline of the next call starts now.
            self._hang_detector.begin(number)

    def _check(self, busy: Sequence[WorkerHandle]) -> None:
        """Raise WorkerHung for a worker that has been silent for too long."""
        self._hang_detector.check([(worker, self._pending[worker.share.worker][0].name) for worker in busy])

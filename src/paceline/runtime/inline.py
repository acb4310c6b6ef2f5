"""Runtime without workers: one job in this process, executed in the caller's thread. The reference for the others."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Concatenate, Generic

from paceline.memory.shared import Arena
from paceline.runtime.protocol import CentralInferenceJob, GradientJob, InferenceChannel, J, P, Program, R, Reply, Share
from paceline.runtime.watchdog import Watchdog


class InlineRuntime(Generic[J]):
    """No workers: `submit` stores the call, and `wait` executes it in the caller's thread.

    Args:
        program: Builds the job.
        arena: Shared memory.
        groups: Number of groups; all belong to the one job.
        timeouts_s: Start and step timeouts, after which a watchdog logs where the job hangs; None for no watchdog.
    """

    num_workers = bytes_up = 0

    def __init__(
        self, program: Program[J], arena: Arena, groups: int, timeouts_s: tuple[float, float] | None = None
    ) -> None:
        self._watchdog = None if timeouts_s is None else Watchdog(arena["heartbeat"][0], *timeouts_s)
        try:
            with self._watched("start"):
                self._job = program(arena, Share(0, 0, groups))
        except BaseException:
            if self._watchdog is not None:
                self._watchdog.close()
            raise
        self._gradients: GradientJob | None = self._job if isinstance(self._job, GradientJob) else None
        self._closed = False
        self._pending: deque[tuple[Reply[object], Callable[[], object]]] = deque()

    def connect(self, channel: InferenceChannel) -> None:
        """Give the job its channel to central inference.

        Raises:
            TypeError: The job does not support central inference.
        """
        if not isinstance(self._job, CentralInferenceJob):
            raise TypeError(f"{type(self._job).__name__}: has no `connect`, and cannot use central inference.")
        self._job.connect(channel)

    def _watched(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self._watchdog is None else self._watchdog.over(name)

    def submit(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> Reply[R]:
        """Store the call; `wait` executes it."""
        reply: Reply[R] = Reply(worker, call.__name__)
        self._pending.append((reply, partial(call, self._job, *args, **kwargs)))
        return reply

    def submit_all(self, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Store the call: there is one job, so this is `submit`."""
        return [self.submit(0, call, *args, **kwargs)]

    def wait(
        self,
        replies: Sequence[Reply[R]],
        *,
        all: bool,  # noqa: A002
        timeout_s: float = math.inf,  # noqa: ARG002 - a call in this thread cannot be cut short
    ) -> list[Reply[R]]:
        """Execute stored calls in order until these replies are done (or one of them). Raises what the job raises."""
        done = [reply for reply in replies if reply.done]
        while self._pending and len(done) < (len(replies) if all else min(1, len(replies))):
            reply, execute = self._pending.popleft()
            with self._watched(reply.name):
                reply.put(execute())
            done = [reply for reply in replies if reply.done]
        return done

    def respawn(self, worker: int, call: Callable[Concatenate[J, P], R], *args: P.args, **kwargs: P.kwargs) -> R:  # noqa: ARG002 - required by the protocol
        """Raise: this process cannot be replaced.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(f"worker {worker}: runs in this process and cannot be replaced.")

    def work(self, count: int) -> None:
        """Compute tasks 0 to count - 1, one after another.

        Raises:
            TypeError: The job computes no gradients.
        """
        if self._gradients is None:
            raise TypeError(f"{type(self._job).__name__}: has no `work`, and cannot compute gradients.")
        for task in range(count):
            self._gradients.work(task)

    def pids(self) -> list[int]:
        """Return no ids: there is no other process."""
        return []

    def close(self) -> None:
        """Close the job. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._watchdog is not None:
                self._watchdog.close()
            self._job.close()

"""The sequential reference: the one job runs in this process."""

from __future__ import annotations

from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from paceline.memory.shared import Arena
from paceline.runtime.protocol import Program, Share
from paceline.runtime.watchdog import Watchdog


class InlineRuntime:
    """No workers: `run` is a method call.

    Args:
        program: Builds the job.
        arena: Shared memory.
        groups: All of them are the job's.
        timeouts_s: How long a start and a step may take before a watchdog says where it hangs; None for no watchdog.
    """

    num_workers = bytes_up = 0

    def __init__(
        self, program: Program, arena: Arena, groups: int, timeouts_s: tuple[float, float] | None = None
    ) -> None:
        self._watchdog = None if timeouts_s is None else Watchdog(arena["heartbeat"][0], *timeouts_s)
        try:
            with self._watched("start"):
                self._job: Any = program(arena, Share(0, 0, groups))
        except BaseException:
            if self._watchdog is not None:
                self._watchdog.close()
            raise
        self._closed = False
        self._asked: tuple[str, tuple[Any, ...]] = "", ()
        self._posted: deque[tuple[str, tuple[Any, ...]]] = deque()

    def connect(self, asker: Any) -> None:
        """Whom the job may ask."""
        self._job.connect(asker)

    def run(self, command: str, *args: Any) -> list[Any]:
        """Do it now, here."""
        with self._watched(command):
            return [getattr(self._job, command)(*args)]

    def _watched(self, command: str) -> AbstractContextManager[None]:
        return nullcontext() if self._watchdog is None else self._watchdog.over(command)

    def start(self, command: str, *args: Any) -> None:
        """Remember it: there is nobody else to do it meanwhile."""
        self._asked = command, args

    def finish(self) -> list[Any]:
        """Do what was remembered."""
        command, args = self._asked
        return self.run(command, *args)

    def post(self, worker: int, command: str, *args: Any) -> None:  # noqa: ARG002 - there is one job
        """Remember it too."""
        self._posted.append((command, args))

    def take(self, timeout_s: float) -> list[tuple[int, Any]]:  # noqa: ARG002 - it takes as long as it takes
        """Do the first of what was posted."""
        if not self._posted:
            return []
        command, args = self._posted.popleft()
        return [(0, *self.run(command, *args))]

    def respawn(self, worker: int, command: str, *args: Any) -> Any:  # noqa: ARG002 - the protocol's
        """There is nothing to replace.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(f"worker {worker}: runs in this process, which cannot be replaced.")

    def work(self, count: int) -> None:
        """One item after another."""
        for item in range(count):
            self._job.work(item)

    def pids(self) -> list[int]:
        """No other process."""
        return []

    def close(self) -> None:
        """Close the job. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._watchdog is not None:
                self._watchdog.close()
            self._job.close()

"""The sequential reference: the one job runs in this process."""

from __future__ import annotations

from collections import deque
from typing import Any

from paceline.memory.shared import Arena
from paceline.runtime.protocol import Program, Share


class InlineRuntime:
    """No workers: `run` is a method call."""

    num_workers = bytes_up = 0

    def __init__(self, program: Program, arena: Arena, groups: int) -> None:
        self._job: Any = program(arena, Share(0, 0, groups))
        self._closed = False
        self._asked: tuple[str, tuple[Any, ...]] = "", ()
        self._posted: deque[tuple[str, tuple[Any, ...]]] = deque()

    def run(self, command: str, *args: Any) -> list[Any]:
        """Do it now, here."""
        return [getattr(self._job, command)(*args)]

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
            self._job.close()

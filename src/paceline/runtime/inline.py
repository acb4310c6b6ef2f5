"""The sequential reference: the one job runs in this process."""

from __future__ import annotations

from typing import Any

from paceline.memory.shared import Arena
from paceline.runtime.protocol import Program, Share


class InlineRuntime:
    """No workers: `run` is a method call."""

    num_workers = 0

    def __init__(self, program: Program, arena: Arena, groups: int) -> None:
        self._job: Any = program(arena, Share(0, 0, groups))
        self._closed = False
        self._asked: tuple[str, tuple[Any, ...]] = "", ()

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

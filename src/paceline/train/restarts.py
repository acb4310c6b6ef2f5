"""New processes for workers that died, as long as that helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.errors import WorkerDied
from paceline.runtime.protocol import Runtime

MOST_IN_A_ROW = 3
"""How often one worker is replaced with nothing collected in between. At the next death it is given up."""


class Restarts:
    """Replaces workers, counts, and says so.

    Args:
        runtime: Theirs.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._in_a_row: dict[int, int] = {}
        self.count = 0
        self._notes: list[str] = []

    def replace(self, death: WorkerDied, command: str, *args: Any) -> tuple[int, Any]:
        """Put a new process in its place.

        Args:
            death: Whose, and of what.
            command: What the new one does first.
            *args: Of the command.

        Returns:
            The worker's number, and the result of the command.

        Raises:
            WorkerDied: It has died too often.
        """
        while True:
            worker = death.worker
            deaths = self._in_a_row[worker] = self._in_a_row.get(worker, 0) + 1
            if deaths > MOST_IN_A_ROW:
                raise WorkerDied(f"{death}\nIt was replaced {MOST_IN_A_ROW} times in a row; that is enough.", worker)
            self._notes.append(f"{death} It is replaced, and training goes on.")
            self.count += 1
            try:
                return worker, self._runtime.respawn(worker, command, *args)
            except WorkerDied as again:
                death = again

    def finish(self, where: Callable[[], tuple[Any, ...]], strayed: Callable[[list[int]], None]) -> list[Any]:
        """Wait for all workers to do what was started. One that dies is replaced, and its envs put back.

        Args:
            where: What `restore` of a new worker is told: where its envs were when they were started.
            strayed: Is told of the envs that could not be put back.

        Returns:
            What they answered, in worker order.
        """
        while True:
            try:
                answers = self._runtime.finish()
            except WorkerDied as death:
                worker, lost = self.replace(death, "restore", *where())
                if lost:
                    self._notes.append(f"worker {worker}: envs {lost} could not be put back, and began new episodes.")
                strayed(lost)
            else:
                for worker in range(len(answers)):
                    self.collected(worker)
                return answers

    def collected(self, worker: int) -> None:
        """It does its work."""
        self._in_a_row.pop(worker, None)

    def notes(self) -> list[str]:
        """What happened since this was last asked, in words."""
        notes, self._notes = self._notes, []
        return notes

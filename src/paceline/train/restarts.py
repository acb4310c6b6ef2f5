"""New processes for workers that are lost, as long as that helps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from paceline.errors import WorkerLost
from paceline.runtime.protocol import Runtime

Recovery: TypeAlias = Literal["exact", "restart", "fail"]

MOST_IN_A_ROW = 3
"""How often one worker is replaced with nothing collected in between, unless said otherwise."""
BACK_OFF_S, LONGEST_BACK_OFF_S = 0.25, 30.0
"""What goes before the second replacement in a row; doubles from then on."""
POLL_S = 0.5


class Envs(Protocol):
    """Where envs were when workers were started, for those that have to be put back."""

    def where(self) -> tuple[Any, ...]:
        """What `restore` of a new worker is told."""

    def begin_anew(self, worker: int) -> tuple[list[int], tuple[Any, ...]]:
        """Move a worker's envs on to new episodes; returns the envs, and what `reset` of a new worker is told."""

    def strayed(self, envs: list[int]) -> None:
        """These could not be put back, and have begun new episodes."""


class Restarts:
    """Replaces workers, counts, and says so.

    Args:
        runtime: Theirs.
        recovery: Whether envs are put back exactly where that is possible, or begin new episodes, or the run ends.
        most: How often one worker is replaced with nothing collected in between. At the next loss the run ends.
    """

    def __init__(self, runtime: Runtime, recovery: Recovery = "exact", most: int = MOST_IN_A_ROW) -> None:
        self._runtime, self._recovery, self._most = runtime, recovery, most
        self._in_a_row: Counter[int] = Counter()
        self._of_worker: Counter[int] = Counter()
        self._causes: dict[int, list[str]] = {}
        self._notes: list[tuple[str, str]] = []
        self.count = 0
        """Replacements."""
        self.strayed = 0
        """Episodes that were broken off by them."""

    def replace(self, loss: WorkerLost, command: str, *args: Any) -> tuple[int, Any]:
        """Put a new process in its place.

        Args:
            loss: Of whom, and how.
            command: What the new one does first.
            *args: Of the command.

        Returns:
            The worker's number, and the result of the command.

        Raises:
            WorkerLost: It was lost too often.
        """
        return self._replace(loss, lambda _worker, _attempt: (command, args))

    def begin(self, command: str, *args: Any) -> list[Any]:
        """Have all workers put their envs where they begin. One that is lost is replaced, and does so, too.

        Args:
            command: What puts them there, the same as if it had been done only once.
            *args: Of the command.

        Returns:
            What they answered, in worker order.

        Raises:
            WorkerLost: One was lost too often.
        """
        answers: dict[int, Any] = {}
        workers = range(max(1, self._runtime.num_workers))
        for worker in workers:
            self._runtime.post(worker, command, *args)
        while len(answers) < len(workers):
            try:
                answers |= dict(self._runtime.take(POLL_S))
            except WorkerLost as loss:
                worker, answer = self.replace(loss, command, *args)
                answers[worker] = answer
        return [answers[worker] for worker in workers]

    def finish(self, envs: Envs) -> list[Any]:
        """Wait for all workers to do what was started. One that is lost is replaced, and its envs put back.

        Args:
            envs: Where they were when they were started.

        Returns:
            What they answered, in worker order.

        Raises:
            WorkerLost: One was lost too often.
        """
        while True:
            try:
                answers = self._runtime.finish()
            except WorkerLost as loss:
                self._put_back(loss, envs)
            else:
                for worker in range(len(answers)):
                    self.collected(worker)
                return answers

    def collected(self, worker: int) -> None:
        """It does its work."""
        self._in_a_row.pop(worker, None)
        self._causes.pop(worker, None)

    def began_anew(self, worker: int, envs: list[int]) -> None:
        """These envs of a new worker have begun new episodes."""
        if envs:
            self.strayed += len(envs)
            self._notes.append((f"worker {worker}: {_listed(envs)} began new episodes.", ""))

    def notes(self) -> list[tuple[str, str]]:
        """What happened since this was last asked: a line each, and more for the log."""
        notes, self._notes = self._notes, []
        return notes

    def _put_back(self, loss: WorkerLost, envs: Envs) -> None:
        """Replace it, with its envs where they were; or, where it was lost there again, at new episodes."""
        anew: list[int] = []

        def begin(worker: int, attempt: int) -> tuple[str, tuple[Any, ...]]:
            nonlocal anew
            # What is lost in one way again and again would be lost once more: the last attempt goes elsewhere.
            same = self._most > 1 and attempt == self._most and len({*self._causes[worker]}) == 1
            if self._recovery == "exact" and not (same and self._causes[worker][0]):
                return "restore", envs.where()
            anew, args = envs.begin_anew(worker)
            return "reset", args

        worker, answer = self._replace(loss, begin)
        if anew:
            envs.strayed(anew)
            self.began_anew(worker, anew)
        elif answer:
            envs.strayed(answer)
            self._notes.append((f"worker {worker}: {_listed(answer)} could not be put back.", ""))
            self.began_anew(worker, answer)

    def _replace(self, loss: WorkerLost, begin: Callable[[int, int], tuple[str, tuple[Any, ...]]]) -> tuple[int, Any]:
        while True:
            worker = loss.worker
            attempt = self._in_a_row[worker] + 1
            self._end_if_enough(loss, attempt)
            self._in_a_row[worker] = attempt
            self._causes.setdefault(worker, []).append(loss.cause)
            self._of_worker[worker] += 1
            self.count += 1
            self._notes.append((f"{loss.text} It is replaced, and training goes on.", loss.detail))
            if attempt > 1:
                time.sleep(min(LONGEST_BACK_OFF_S, BACK_OFF_S * 2 ** (attempt - 2)))
            command, args = begin(worker, attempt)
            try:
                return worker, self._runtime.respawn(worker, command, *args)
            except WorkerLost as again:
                loss = again

    def _end_if_enough(self, loss: WorkerLost, attempt: int) -> None:
        if self._recovery == "fail":
            loss.args = (f"{loss}\nIt is not replaced: recovery is `fail`. Use --recovery exact, or restart.",)
            raise loss
        if attempt > self._most:
            each = ", ".join(f"worker {worker}: {count}" for worker, count in sorted(self._of_worker.items()))
            loss.args = (
                f"{loss}\nIt was replaced {self._most} times in a row with nothing collected in between; that is "
                f"enough ({self.count} in all{': ' if each else ''}{each}). Mend what ends it, or raise "
                "--max-restarts.",
            )
            raise loss


def _listed(envs: list[int]) -> str:
    """Envs in words; a range where they are one."""
    if len(envs) > 1 and envs == list(range(envs[0], envs[0] + len(envs))):
        return f"envs {envs[0]}-{envs[-1]}"
    return f"env {envs[0]}" if len(envs) == 1 else f"envs {', '.join(map(str, envs))}"

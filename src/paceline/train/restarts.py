"""New processes for workers that are lost, as long as that helps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from paceline.errors import WorkerLost
from paceline.runtime.protocol import Job, Reply, Runtime

Recovery: TypeAlias = Literal["exact", "restart", "fail"]

MAX_IN_A_ROW = 3
"""How often one worker is replaced with nothing collected in between, unless said otherwise."""
BACK_OFF_S, MAX_BACK_OFF_S = 0.25, 30.0
"""What goes before the second replacement in a row; doubles from then on."""
POLL_S = 0.5

J_co = TypeVar("J_co", bound=Job, covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class EnvRecovery(Protocol):
    """Where the envs of all workers were when a call was submitted, so that a new worker can repeat that call."""

    def respawn_restored(self, worker: int) -> list[int]:
        """Respawn a worker with its envs where they were; returns the envs where that failed, at new episodes instead.

        Raises:
            WorkerLost: The new worker was lost, too.
        """

    def respawn_reset(self, worker: int) -> list[int]:
        """Respawn a worker with its envs at the start of new episodes; returns all of its envs.

        Raises:
            WorkerLost: The new worker was lost, too.
        """

    def forget_episodes(self, envs: list[int]) -> None:
        """Forget the episodes of these envs: they could not be put back, and have begun new ones."""


@dataclass(frozen=True, slots=True)
class SubmittedCall(Generic[R]):
    """A call that was submitted to all workers."""

    replies: list[Reply[R]]
    """In worker order. The reply of a worker that is replaced gives way to a new one."""
    resubmit: Callable[[int], Reply[R]]
    """Submits the same call to one worker."""


class Restarts(Generic[J_co]):
    """Replaces workers, counts, and says so.

    Args:
        runtime: Theirs.
        recovery: Whether envs are put back exactly where that is possible, or begin new episodes, or the run ends.
        most: How often one worker is replaced with nothing collected in between. At the next loss the run ends.
    """

    def __init__(self, runtime: Runtime[J_co], recovery: Recovery = "exact", most: int = MAX_IN_A_ROW) -> None:
        self._runtime, self._recovery, self._most = runtime, recovery, most
        self._in_a_row: Counter[int] = Counter()
        self._of_worker: Counter[int] = Counter()
        self._causes: dict[int, list[str]] = {}
        self._notes: list[tuple[str, str]] = []
        self.count = 0
        """Replacements."""
        self.restarted = 0
        """Episodes that were broken off by them."""

    def replace(
        self, loss: WorkerLost, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[int, R]:
        """Put a new process in its place. Blocks until that has executed its first call.

        Args:
            loss: Which worker was lost, and how.
            call: What the new one executes first.
            *args: Of the call.
            **kwargs: Of the call.

        Returns:
            The worker's number, and the result of the call.

        Raises:
            WorkerLost: It was lost too often.
        """
        return self._replace(loss, lambda worker, _attempt: self._runtime.respawn(worker, call, *args, **kwargs))

    def run_all(self, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Have all workers put their envs where they begin, and wait. One that is lost is replaced, and does so, too.

        Args:
            call: What puts them there. A worker may execute it again, with the same effect as once.
            *args: Of the call.
            **kwargs: Of the call.

        Returns:
            The results, in worker order.

        Raises:
            WorkerLost: One was lost too often.
        """
        results: dict[int, R] = {}
        workers = range(max(1, self._runtime.num_workers))
        pending = [self._runtime.submit(worker, call, *args, **kwargs) for worker in workers]
        while len(results) < len(workers):
            try:
                done = self._runtime.wait(pending, all=False, timeout_s=POLL_S)
            except WorkerLost as loss:
                worker, result = self.replace(loss, call, *args, **kwargs)
                results[worker] = result
                pending = [reply for reply in pending if reply.worker != worker]
            else:
                results |= {reply.worker: reply.result() for reply in done}
                pending = [reply for reply in pending if not reply.done]
        return [results[worker] for worker in workers]

    def start(self, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> SubmittedCall[R]:
        """Submit a call to all workers. Does not wait: `finish` does."""
        runtime = self._runtime
        replies = runtime.submit_all(call, *args, **kwargs)
        return SubmittedCall(replies, lambda worker: runtime.submit(worker, call, *args, **kwargs))

    def finish(self, started: SubmittedCall[R], envs: EnvRecovery) -> list[R]:
        """Wait until all workers have executed a call.

        A worker that is lost is replaced, its envs are put back to where they were when the call was submitted, and it
        executes the call again.

        Args:
            started: The call.
            envs: Where they were then.

        Returns:
            The results, in worker order.

        Raises:
            WorkerLost: One was lost too often.
        """
        while True:
            try:
                self._runtime.wait(started.replies, all=True)
            except WorkerLost as loss:
                worker = self._put_back(loss, envs)
                started.replies[worker] = started.resubmit(worker)
            else:
                for reply in started.replies:
                    self.succeeded(reply.worker)
                return [reply.result() for reply in started.replies]

    def succeeded(self, worker: int) -> None:
        """It does its work."""
        self._in_a_row.pop(worker, None)
        self._causes.pop(worker, None)

    def note_new_episodes(self, worker: int, envs: list[int]) -> None:
        """These envs of a new worker have begun new episodes."""
        if envs:
            self.restarted += len(envs)
            self._notes.append((f"worker {worker}: {_listed(envs)} began new episodes.", ""))

    def notes(self) -> list[tuple[str, str]]:
        """What happened since this was last asked: a line each, and more for the log."""
        notes, self._notes = self._notes, []
        return notes

    def _put_back(self, loss: WorkerLost, envs: EnvRecovery) -> int:
        """Replace it, with its envs where they were; or, where it was lost there again, at new episodes."""
        anew: list[int] = []

        def begin(worker: int, attempt: int) -> list[int]:
            nonlocal anew
            # What is lost in one way again and again would be lost once more: the last attempt goes elsewhere.
            same = self._most > 1 and attempt == self._most and len({*self._causes[worker]}) == 1
            if self._recovery == "exact" and not (same and self._causes[worker][0]):
                return envs.respawn_restored(worker)
            anew = envs.respawn_reset(worker)
            return []

        worker, failed = self._replace(loss, begin)
        if anew:
            envs.forget_episodes(anew)
            self.note_new_episodes(worker, anew)
        elif failed:
            envs.forget_episodes(failed)
            self._notes.append((f"worker {worker}: {_listed(failed)} could not be put back.", ""))
            self.note_new_episodes(worker, failed)
        return worker

    def _replace(self, loss: WorkerLost, begin: Callable[[int, int], R]) -> tuple[int, R]:
        """Respawn a worker by `begin(worker, attempt)`, which returns what its first call did, until that succeeds."""
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
                time.sleep(min(MAX_BACK_OFF_S, BACK_OFF_S * 2 ** (attempt - 2)))
            try:
                return worker, begin(worker, attempt)
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

"""Replaces lost workers by new processes, up to a limit, and restores their envs."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, Literal, Protocol, TypeAlias

from paceline.errors import WorkerLost
from paceline.runtime.protocol import J_co, P, R, Reply, Runtime
from paceline.train.stopping import Interruptible

Recovery: TypeAlias = Literal["exact", "restart", "fail"]

MAX_IN_A_ROW = 3
"""Default of how often a worker is replaced in a row, i.e. without completing a call in between."""
BACK_OFF_S, MAX_BACK_OFF_S = 0.25, 30.0
"""Pause before the second replacement in a row, which doubles with each further one, and its maximum."""


class EnvRecovery(Protocol):
    """Brings the envs of a new worker into the state in which it can repeat the call of the lost worker."""

    def respawn_restored(self, worker: int) -> list[int]:
        """Respawn a worker and restore its envs to their state when the call was submitted.

        Returns:
            The envs that could not be restored; they have started new episodes.

        Raises:
            WorkerLost: The new worker was lost, too.
        """

    def respawn_reset(self, worker: int) -> list[int]:
        """Respawn a worker and start a new episode in each of its envs; returns these envs.

        Raises:
            WorkerLost: The new worker was lost, too.
        """

    def forget_episodes(self, envs: list[int]) -> None:
        """Clear what is recorded about the episodes of these envs, which have started new ones."""


@dataclass(frozen=True, slots=True)
class BroadcastCall(Generic[R]):
    """A call that was submitted to all workers."""

    replies: list[Reply[R]]
    """In worker order. If a worker is replaced, the reply to the resubmitted call takes the place of its reply."""
    resubmit: Callable[[int], Reply[R]]
    """Submits the same call to one worker."""


class Restarts(Generic[J_co]):
    """Replaces lost workers, counts the replacements, and keeps notes about them for the log.

    Args:
        runtime: The workers.
        recovery: `exact` restores the envs if possible, `restart` starts new episodes, `fail` ends the run.
        max_in_a_row: How often a worker is replaced without completing a call in between. The next loss ends the run.
    """

    def __init__(self, runtime: Runtime[J_co], recovery: Recovery = "exact", max_in_a_row: int = MAX_IN_A_ROW) -> None:
        self.runtime, self._recovery, self._max_in_a_row = runtime, recovery, max_in_a_row
        self._count_by_worker: Counter[int] = Counter()
        self._causes: defaultdict[int, list[str]] = defaultdict(list)  # of the losses in a row of each worker
        self._notes: list[tuple[str, str]] = []
        self.restarted = 0
        """Number of episodes that were cut short by replacements."""
        self.interruptible = Interruptible()
        """Marks the waits for workers that Ctrl-C may cut off."""

    @property
    def count(self) -> int:
        """Number of replacements."""
        return self._count_by_worker.total()

    def replace(
        self, loss: WorkerLost, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Replace a lost worker by a new process. Blocks until that has executed its first call; returns its result.

        Args:
            loss: The worker, and how it was lost.
            call: The first call of the new process.
            *args: Arguments of the call.
            **kwargs: Keyword arguments of the call.

        Raises:
            WorkerLost: The worker was lost too often.
        """
        return self._replace(loss, lambda _attempt: self.runtime.respawn(loss.worker, call, *args, **kwargs))

    def run_all(self, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Execute a call that resets or restores envs on all workers, and wait. New workers repeat it.

        Args:
            call: The call. It must be idempotent.
            *args: Arguments of the call.
            **kwargs: Keyword arguments of the call.

        Returns:
            The results, in worker order.

        Raises:
            WorkerLost: A worker was lost too often.
        """
        workers = range(max(1, self.runtime.num_workers))
        pending = [self.runtime.submit(worker, call, *args, **kwargs) for worker in workers]
        results: dict[int, R] = {}  # of the new workers
        while True:
            try:
                self.runtime.wait(pending, all=True)
            except WorkerLost as loss:
                results[loss.worker] = self.replace(loss, call, *args, **kwargs)
                pending = [reply for reply in pending if reply.worker != loss.worker]
            else:
                results |= {reply.worker: reply.result() for reply in pending}
                return [results[worker] for worker in workers]

    def start(self, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> BroadcastCall[R]:
        """Submit a call to all workers. Does not block; `finish` waits."""
        replies = self.runtime.submit_all(call, *args, **kwargs)
        return BroadcastCall(replies, lambda worker: self.runtime.submit(worker, call, *args, **kwargs))

    def finish(self, submitted: BroadcastCall[R], envs: EnvRecovery) -> list[R]:
        """Wait until all workers have executed a call. A lost worker is replaced, and the new one repeats the call.

        Args:
            submitted: The call.
            envs: Restores the envs of a new worker to their state when the call was submitted.

        Returns:
            The results, in worker order.

        Raises:
            WorkerLost: A worker was lost too often.
        """
        while True:
            try:
                self.runtime.wait(submitted.replies, all=True)
            except WorkerLost as loss:
                self._replace_and_recover(loss, envs)
                submitted.replies[loss.worker] = submitted.resubmit(loss.worker)
            else:
                for reply in submitted.replies:
                    self.succeeded(reply.worker)
                return [reply.result() for reply in submitted.replies]

    def wait_any(self, replies: Sequence[Reply[R]], timeout_s: float) -> list[Reply[R]]:
        """Wait for one of these calls that collect, until the timeout; Ctrl-C may cut that off. Returns those done.

        Raises:
            WorkerLost: A worker was lost; the caller replaces it.
        """
        with self.interruptible.during("rollout"):
            return self.runtime.wait(replies, all=False, timeout_s=timeout_s)

    def succeeded(self, worker: int) -> None:
        """Record that a worker has completed a call: its replacements in a row count from zero again."""
        self._causes.pop(worker, None)

    def note_new_episodes(self, worker: int, envs: list[int]) -> None:
        """Record that these envs of a new worker have started new episodes."""
        if envs:
            self.restarted += len(envs)
            self._notes.append((f"worker {worker}: {_listed(envs)} started new episodes.", ""))

    def notes(self) -> list[tuple[str, str]]:
        """Return the notes since the last call: a line for the terminal, and details for the log (may be empty)."""
        notes, self._notes = self._notes, []
        return notes

    def _replace_and_recover(self, loss: WorkerLost, envs: EnvRecovery) -> None:
        """Replace a worker and restore its envs, or start new episodes if restoring has the same failure every time."""
        worker = loss.worker

        def respawn(attempt: int) -> tuple[bool, list[int]]:
            """Return whether the envs were to be restored, and which ones have started new episodes."""
            # If all losses had one cause, the restored state probably causes it: the last attempt resets the envs.
            limit = self._max_in_a_row
            same = limit > 1 and attempt == limit and len({*self._causes[worker]}) == 1
            if self._recovery == "exact" and not (same and self._causes[worker][0]):
                return True, envs.respawn_restored(worker)
            return False, envs.respawn_reset(worker)

        restoring, new_episodes = self._replace(loss, respawn)
        if new_episodes:
            envs.forget_episodes(new_episodes)
            if restoring:
                self._notes.append((f"worker {worker}: {_listed(new_episodes)} could not be restored.", ""))
            self.note_new_episodes(worker, new_episodes)

    def _replace(self, loss: WorkerLost, respawn: Callable[[int], R]) -> R:
        """Respawn a worker by `respawn(attempt)` until that succeeds; returns the result."""
        worker = loss.worker
        while True:
            attempt = len(self._causes[worker]) + 1
            self._raise_at_limit(loss, attempt)
            self._causes[worker].append(loss.cause)
            self._count_by_worker[worker] += 1
            self._notes.append((f"{loss.text} It is replaced; training continues.", loss.detail))
            try:
                with self.interruptible.during("rollout"):
                    if attempt > 1:
                        time.sleep(min(MAX_BACK_OFF_S, BACK_OFF_S * 2 ** (attempt - 2)))
                    return respawn(attempt)
            except WorkerLost as again:
                loss = again

    def _raise_at_limit(self, loss: WorkerLost, attempt: int) -> None:
        if self._recovery == "fail":
            loss.args = (f"{loss}\nIt is not replaced: recovery is `fail`. Use --recovery exact, or restart.",)
            raise loss
        if attempt > self._max_in_a_row:
            counts = ", ".join(f"worker {worker}: {count}" for worker, count in sorted(self._count_by_worker.items()))
            loss.args = (
                f"{loss}\nIt was replaced {self._max_in_a_row} times in a row without completing a call in between, "
                f"which is the limit ({self.count} in all{': ' if counts else ''}{counts}). "
                "Fix the cause, or raise --max-restarts.",
            )
            raise loss


def _listed(envs: list[int]) -> str:
    """Format env numbers, as a range if they are contiguous."""
    if len(envs) > 1 and envs == list(range(envs[0], envs[0] + len(envs))):
        return f"envs {envs[0]}-{envs[-1]}"
    return f"env {envs[0]}" if len(envs) == 1 else f"envs {', '.join(map(str, envs))}"

"""A thread that owns envs: it constructs, resets, steps and closes them, and nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias

Outcome: TypeAlias = tuple[Any, BaseException | None]
"""What a call returned, or raised."""


class EnvThread(threading.Thread):
    """Does what its inbox says until that is None. A daemon: an env that hangs does not keep the process."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.done: SimpleQueue[None] = SimpleQueue()
        self.stuck = False
        self.start()

    def run(self) -> None:
        """Serve."""
        while (job := self.inbox.get()) is not None:
            job()

    def post(self, job: Callable[[], Any]) -> SimpleQueue[Outcome]:
        """Have something done; where the outcome will be."""
        answer: SimpleQueue[Outcome] = SimpleQueue()
        self.inbox.put(lambda: answer.put(outcome_of(job)))
        return answer

    def ask(self, job: Callable[[], Any]) -> Outcome:
        """Have something done, and wait for it.

        Raises:
            TimeoutError: The thread is stuck.
        """
        if self.stuck:
            raise TimeoutError("an env of the same thread hangs; both are left behind")
        return self.post(job).get()


def outcome_of(job: Callable[[], Any]) -> Outcome:
    """What a job returned, or raised."""
    try:
        return job(), None
    except BaseException as error:
        return None, error


def result_of(outcome: Outcome) -> Any:
    """What the job returned; raises what it raised."""
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]

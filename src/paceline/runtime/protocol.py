"""How workers exist: one protocol, implemented by `inline`, `process` and `ray`.

A runtime knows nothing of envs or policies. It is handed a program, has one job built from it per worker, and
calls the job's methods by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.memory.shared import Arena


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker owns: a contiguous range of groups."""

    worker: int
    first_group: int
    groups: int
    helps: bool = True
    """Whether it may be asked for `work`."""

    def envs(self, group_size: int) -> list[int]:
        """The envs of its groups."""
        return list(range(self.first_group * group_size, (self.first_group + self.groups) * group_size))


class Job(Protocol):
    """What a worker does. Its other public methods are the commands it takes; `work(item)` serves `Runtime.work`.

    `answer(letter) -> letter` serves `Bells`: it does what shared memory says.
    """

    def close(self) -> None:
        """Let go of envs and memory."""


Program = Callable[[Arena, Share], Job]
"""Builds a worker's job; must survive cloudpickle."""


class Runtime(Protocol):
    """Workers that do what they are told, together."""

    num_workers: int
    """Processes; 0 for inline."""
    bytes_up: int
    """Bytes that workers have sent to the driver over a network so far; 0 where they share its memory."""

    def run(self, command: str, *args: Any) -> list[Any]:
        """Have every job do `command(*args)` and wait for all; results in worker order.

        Raises:
            WorkerError: A job raised, died or missed its deadline. The runtime must then be closed.
        """

    def start(self, command: str, *args: Any) -> None:
        """The first half of `run`: have every job begin. Only `work` and `respawn` may come before `finish`."""

    def finish(self) -> list[Any]:
        """The second half: wait for all; results in worker order.

        Raises:
            WorkerError: As `run`. After `WorkerLost`, `respawn` the worker it names and call this again.
        """

    def post(self, worker: int, command: str, *args: Any) -> None:
        """Have one job do `command(*args)` after all that was posted to it before. Does not wait."""

    def take(self, timeout_s: float) -> list[tuple[int, Any]]:
        """Results of what was posted, with the worker's number, from whoever has one by then.

        Raises:
            WorkerError: As `run`; `WorkerLost` names the worker, which may be replaced by `respawn`.
        """

    def respawn(self, worker: int, command: str, *args: Any) -> Any:
        """Replace a worker that died by a new one, whose job does `command(*args)` first of all; returns the result.

        It then does the command that was started, if it has not; what was posted is forgotten.

        Raises:
            WorkerError: As `run`, for the new one.
        """

    def work(self, count: int) -> None:
        """Have the items 0 to count - 1 done, each by `job.work(item)` of whichever job is free, and wait.

        Raises:
            WorkerError: As `run`.
        """

    def pids(self) -> list[int]:
        """Process ids in worker order; empty where workers are no processes of this machine."""

    def close(self) -> None:
        """End all workers. Idempotent, returns within seconds."""


class Bells(Protocol):
    """Workers that have been started with `runtime.start("serve")`, each doing one small thing per ring."""

    rings: list[int]
    """Wake-ups of each worker, `rest` not counted."""

    def ring(self, worker: int, letter: bytes = b"") -> None:
        """Have a worker answer. It must have answered before, and nobody may touch what it is to read until it has."""

    def wait(self, workers: Collection[int], *, at_least: int, timeout_s: float, doing: str) -> list[int]:
        """Those that have answered all their rings, when so many have, or by then.

        Args:
            workers: Whom to wait for.
            at_least: How many of them.
            timeout_s: How long at most.
            doing: What they do, for error texts.

        Raises:
            WorkerError: Any worker raised, died or missed its deadline. The runtime must then be closed, or after
                `WorkerDied` the worker be replaced by `respawn`, which has heard no ring.
        """

    def letter(self, worker: int) -> bytes:
        """What a worker answered; to be read once, and before it is rung again."""

    def rest(self) -> None:
        """Have all stop serving: `runtime.finish` then returns. All must have answered."""


def shares(groups: int, workers: int, first_group: int = 0) -> list[Share]:
    """Divide groups over workers as evenly as can be, in order."""
    workers = max(1, workers)
    base, extra = divmod(groups, workers)
    result, first = [], first_group
    for worker in range(workers):
        count = base + (worker < extra)
        result.append(Share(worker, first, count))
        first += count
    return result

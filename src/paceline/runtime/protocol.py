"""What a runtime is: one protocol, implemented by `inline`, `process` and `ray`.

A runtime knows nothing of envs or policies. From a program it builds one job per worker. The driver then submits calls:
functions whose first parameter is the job, usually an unbound method of the job's class.

    reply = runtime.submit(worker, WorkerJob.collect, step)      # mypy checks `step` against `collect`
    runtime.wait([reply], all=True)
    reply.result()                                               # typed as what `collect` returns

A call travels as a reference to a function: its module and its qualified name. Only a function of the main module, of a
script or a notebook, travels as code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

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
    """What lives in a worker. The driver's calls are executed on it, one after another, in the worker's main thread."""

    def close(self) -> None:
        """Close the envs and release the memory."""


@runtime_checkable
class GradientJob(Job, Protocol):
    """A job that computes items of `Runtime.work`."""

    def work(self, item: int) -> None:
        """Compute one item: a shard of a minibatch's gradient."""


class InferenceChannel(Protocol):
    """A worker's channel to the policy, where that runs elsewhere. The same protocol as `collect` has of it."""

    def ask(self, lane: int, server: int) -> None:
        """Say that the lane's observations are in the arena."""

    def wait(self, lane: int) -> float:
        """Block until its actions are there; returns the seconds spent idle."""

    def end(self, lane: int, server: int) -> None:
        """Say that the lane asks nothing more for now."""


@runtime_checkable
class CentralInferenceJob(Job, Protocol):
    """A job whose policy runs elsewhere, in the driver: central inference."""

    def connect(self, asker: InferenceChannel) -> None:
        """Take the channel to whoever runs the policy. Called once, before the first call."""


@runtime_checkable
class DoorbellJob(Job, Protocol):
    """A job that can be woken by a doorbell (`Doorbells`) instead of by a message."""

    def answer(self, payload: bytes) -> bytes:
        """Do what shared memory and `payload` say; returns the payload for the driver. Called once for each ring."""


J_co = TypeVar("J_co", bound=Job, covariant=True)
"""The job of a runtime's workers. Covariant: workers that hold a subtype understand the same calls."""
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")

Program = Callable[[Arena, Share], J_co]
"""Builds a worker's job, inside the worker; must survive cloudpickle."""


class Reply(Generic[R_co]):
    """The result of one submitted call: pending at first, then done, or forgotten because its worker was replaced.

    Args:
        worker: Which worker executes the call.
        name: Name of the called function, for error texts.
    """

    __slots__ = ("_result", "done", "forgotten", "name", "worker")

    def __init__(self, worker: int, name: str) -> None:
        self.worker, self.name = worker, name
        self.done = False
        """Whether the result is there."""
        self.forgotten = False
        """Whether the worker was replaced before it answered: there will never be a result."""
        self._result: object = None

    def result(self) -> R_co:
        """What the call returned. Does not wait: `Runtime.wait` does.

        Raises:
            RuntimeError: The result is not there yet, or never will be.
        """
        if not self.done:
            raise RuntimeError(f"worker {self.worker}, `{self.name}`: no result yet. Wait for the reply first.")
        return cast(R_co, self._result)

    def put(self, result: object) -> None:
        """Store the result: for runtimes only."""
        self._result, self.done = result, True


class Runtime(Protocol[J_co]):
    """Workers with a job of type `J_co` each.

    A worker executes what is submitted to it in order. No method but `wait`, `respawn`, `work` and `close` blocks, and
    each of those ends: a worker that sends no heartbeat in time is killed and reported.
    """

    num_workers: int
    """Processes; 0 for inline."""
    bytes_up: int
    """Bytes that workers have sent to the driver over a network so far; 0 where they share its memory."""

    def submit(
        self, worker: int, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> Reply[R]:
        """Have one worker execute `call(job, *args, **kwargs)` after all that was submitted to it before.

        A worker that is gone is reported by `wait`.
        """

    def submit_all(self, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Have every worker execute the call; replies in worker order. The arguments are pickled once for all.

        Cheaper than a `submit` to each. In between this and the `wait` for all of the replies, the driver may call
        `work`.
        """

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Block until all replies are done, or at least one of them, or the time is over.

        Args:
            replies: What to wait for; replies that are done already count.
            all: Whether to wait for all of them, or to return as soon as one is done.
            timeout_s: How long at most. Without it the workers' own deadlines still hold.

        Returns:
            Those that are done, in the order given.

        Raises:
            WorkerError: A job raised, died or missed its deadline. The runtime must then be closed; but after
                `WorkerLost`, the worker that it names may be replaced by `respawn`. Other replies stay valid.
            RuntimeError: A reply was forgotten: its worker was replaced after the call was submitted.
        """

    def respawn(self, worker: int, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Replace a lost worker by a new one, which executes this call first; blocks, and returns its result.

        What had been submitted to the lost worker is forgotten: the caller submits it again.

        Raises:
            WorkerError: As `wait`, for the new worker.
        """

    def work(self, count: int) -> None:
        """Have the items 0 to count - 1 done, each by `GradientJob.work` of whichever worker is free, and wait.

        Raises:
            WorkerError: As `wait`.
        """

    def pids(self) -> list[int]:
        """Process ids in worker order; empty where workers are no processes of this machine."""

    def close(self) -> None:
        """End all workers. Idempotent, returns within seconds."""


def run_all(
    runtime: Runtime[J_co], call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs
) -> list[R]:
    """Have every worker execute a call, and wait for all; results in worker order.

    Raises:
        WorkerError: As `Runtime.wait`.
    """
    return [reply.result() for reply in runtime.wait(runtime.submit_all(call, *args, **kwargs), all=True)]


def check_remembered(replies: Sequence[Reply[object]]) -> None:
    """Refuse to wait for what will never come; for runtimes.

    Raises:
        RuntimeError: A worker was replaced after one of these was submitted to it.
    """
    for reply in replies:
        if reply.forgotten:
            raise RuntimeError(
                f"worker {reply.worker}, `{reply.name}`: the worker was replaced after this was submitted. Submit it "
                "again."
            )


def serve(job: DoorbellJob) -> None:
    """The call that has a worker answer rings until it is told to rest; see `Doorbells`.

    Never executed as such: the worker's main loop recognises it, and answers rings by `job.answer`.

    Raises:
        RuntimeError: Always: the runtime was made without bells.
    """
    raise RuntimeError(f"{type(job).__name__}: this runtime was made without bells. Pass bells=True.")


class Doorbells(Protocol):
    """Workers that execute the call `serve`, each doing one small thing per ring."""

    notifications: list[int]
    """Wake-ups of each worker, `rest` not counted."""

    def notify(self, worker: int, payload: bytes = b"") -> None:
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

    def payload(self, worker: int) -> bytes:
        """What a worker answered; to be read once, and before it is rung again."""

    def rest(self) -> None:
        """Have all stop serving: the replies of `serve` are then done. All must have answered."""


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

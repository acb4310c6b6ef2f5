"""The protocol that the runtimes `inline`, `process` and `ray` implement: submit typed calls to workers, and wait.

1. A runtime builds one job per worker from a program. It does not depend on envs or policies.
2. The driver submits calls: functions whose first parameter is the job, usually unbound methods of the job's class.
3. Every worker executes its calls in order, and the driver waits for the replies.

    reply = runtime.submit(worker, RolloutJob.collect, step)      # mypy checks `step` against `collect`
    runtime.wait([reply], all=True)
    reply.result()                                               # typed as what `collect` returns

A call is sent as the module and the qualified name of a function. Only a function that is defined in the main module (a
script or a notebook) is sent as code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

from paceline.memory.shared import Arena


@dataclass(frozen=True, slots=True)
class Share:
    """The contiguous range of groups that one worker owns."""

    worker: int
    first_group: int
    groups: int
    helps: bool = True
    """Whether the worker computes tasks of `Runtime.work`."""

    def envs(self, group_size: int) -> list[int]:
        """Return the indices of the envs in these groups."""
        return list(range(self.first_group * group_size, (self.first_group + self.groups) * group_size))


class Job(Protocol):
    """The object in a worker on which the driver's calls are executed, one by one, in the worker's main thread."""

    def close(self) -> None:
        """Close the envs and release the memory."""


@runtime_checkable
class GradientJob(Job, Protocol):
    """A job that computes tasks of `Runtime.work`."""

    def work(self, task: int) -> None:
        """Compute one task: a shard of a minibatch's gradient."""


class InferenceChannel(Protocol):
    """A worker's channel to central inference."""

    def ask(self, lane: int, server: int) -> None:
        """Announce that the lane's observations are in the arena. Does not block."""

    def wait(self, lane: int) -> float:
        """Block until the lane's actions are in the arena; returns the seconds waited."""

    def end(self, lane: int, server: int) -> None:
        """Announce that the lane sends no further requests for now."""


@runtime_checkable
class CentralInferenceJob(Job, Protocol):
    """A job whose policy runs in the driver: central inference."""

    def connect(self, channel: InferenceChannel) -> None:
        """Store the channel to central inference. Called once, before the first call."""


@runtime_checkable
class DoorbellJob(Job, Protocol):
    """A job that can be woken by a doorbell (`DriverDoorbells`) instead of by a message."""

    def answer(self, payload: bytes) -> bytes:
        """Handle one notification: its data is in `payload` and in shared memory. Returns the reply's payload."""


J = TypeVar("J", bound=Job)
J_co = TypeVar("J_co", bound=Job, covariant=True)
"""The job of a runtime's workers. Covariant: a call for a job also accepts a subtype of that job."""
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
P = ParamSpec("P")

Program = Callable[[Arena, Share], J_co]
"""Builds a worker's job, inside the worker. cloudpickle must be able to pickle it."""


class Reply(Generic[R_co]):
    """The result of one submitted call: pending at first, then done, or forgotten because its worker was replaced.

    Args:
        worker: Index of the worker that executes the call.
        name: Name of the called function, for error texts.
    """

    __slots__ = ("_result", "done", "forgotten", "name", "worker")

    def __init__(self, worker: int, name: str) -> None:
        self.worker, self.name = worker, name
        self.done = False
        """Whether the result has arrived."""
        self.forgotten = False
        """Whether the worker was replaced before it answered: the result will never arrive."""
        self._result: object = None

    def result(self) -> R_co:
        """Return what the call returned. Does not block; call `Runtime.wait` first.

        Raises:
            RuntimeError: The result has not arrived, or never will.
        """
        if not self.done:
            raise RuntimeError(f"worker {self.worker}, `{self.name}`: no result yet. Wait for the reply first.")
        return cast(R_co, self._result)

    def put(self, result: object) -> None:
        """Store the result; only runtimes call this."""
        self._result, self.done = result, True


class Runtime(Protocol[J_co]):
    """Workers with a job of type `J_co` each.

    A worker executes its calls in the order in which they are submitted. Only `wait`, `respawn`, `work` and `close`
    block, and they all return: a worker that sends no heartbeat in time is killed and reported.
    """

    num_workers: int
    """Number of worker processes; 0 for inline."""
    bytes_up: int
    """Bytes that workers have sent to the driver over a network so far; 0 for workers that share its memory."""

    def submit(
        self, worker: int, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> Reply[R]:
        """Send one worker `call(job, *args, **kwargs)`, which it executes after its earlier calls. Does not block.

        If the worker has ended, `wait` raises that.
        """

    def submit_all(self, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> list[Reply[R]]:
        """Send the call to every worker; replies are in worker order. Does not block.

        The arguments are pickled once, so this is cheaper than a `submit` per worker. The driver may call `work` before
        it waits for the replies.
        """

    def wait(self, replies: Sequence[Reply[R]], *, all: bool, timeout_s: float = math.inf) -> list[Reply[R]]:  # noqa: A002
        """Block until all replies are done, or at least one of them, or until the timeout.

        Args:
            replies: The replies to wait for; replies that are already done count.
            all: Whether to wait for all of them, or to return as soon as one is done.
            timeout_s: Longest wait. The timeouts of the workers' heartbeats hold in any case.

        Returns:
            The replies that are done, in the order given.

        Raises:
            WorkerError: A call raised, or a worker died or hangs. The runtime must then be closed. Only after a
                `WorkerLost` may the caller instead replace the worker by `respawn`; other replies stay valid.
            RuntimeError: A reply was forgotten: its worker was replaced after the call was submitted.
        """

    def respawn(self, worker: int, call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Replace a lost worker by a new one, which executes this call first; blocks until then, returns the result.

        The pending calls of the lost worker are forgotten: the caller has to submit them again.

        Raises:
            WorkerError: The new worker failed, as in `wait`.
        """

    def work(self, count: int) -> None:
        """Compute tasks 0 to count - 1, each by `GradientJob.work` of the first free worker; blocks until all are done.

        Raises:
            WorkerError: A worker failed, as in `wait`.
        """

    def pids(self) -> list[int]:
        """Return the process ids in worker order; empty if the workers are not processes of this machine."""

    def close(self) -> None:
        """End all workers. Idempotent, returns within seconds."""


def run_all(
    runtime: Runtime[J_co], call: Callable[Concatenate[J_co, P], R], *args: P.args, **kwargs: P.kwargs
) -> list[R]:
    """Execute a call on every worker, and block until all are done; returns the results in worker order.

    Raises:
        WorkerError: A worker failed, as in `Runtime.wait`.
    """
    return [reply.result() for reply in runtime.wait(runtime.submit_all(call, *args, **kwargs), all=True)]


def check_not_forgotten(replies: Sequence[Reply[object]]) -> None:
    """Raise if one of these replies will never be done; runtimes call this before they wait.

    Raises:
        RuntimeError: A worker was replaced after one of these calls was submitted to it.
    """
    for reply in replies:
        if reply.forgotten:
            raise RuntimeError(
                f"worker {reply.worker}, `{reply.name}`: the worker was replaced after the call was submitted. "
                "Submit it again."
            )


def serve(job: DoorbellJob) -> None:
    """Answer notifications by `job.answer` until `DriverDoorbells.rest`; to be submitted to workers.

    A worker's main loop recognises this function and serves instead of calling it.

    Raises:
        RuntimeError: Always, since it is only executed by a runtime without doorbells.
    """
    raise RuntimeError(f"{type(job).__name__}: this runtime has no doorbells. Create it with doorbells=True.")


def shares(groups: int, workers: int, first_group: int = 0) -> list[Share]:
    """Divide groups over workers, in order, as evenly as possible."""
    workers = max(1, workers)
    base, extra = divmod(groups, workers)
    result, first = [], first_group
    for worker in range(workers):
        count = base + (worker < extra)
        result.append(Share(worker, first, count))
        first += count
    return result

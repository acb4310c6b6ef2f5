"""Transport between a vector env and its envs, which live in worker processes or in this process.

begin(worker, order) ... wait(workers) ... news(worker)      one doorbell wake-up per worker and step
ask(do, envs)                                                 anything else: attributes, methods, rendering
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import cloudpickle
import numpy as np

from paceline.envs.env_thread import TaskOutcome
from paceline.envs.make import Env
from paceline.errors import EnvError, PacelineError, WorkerError
from paceline.memory.shared import Arena, Arrays
from paceline.runtime.doorbell import doorbell_fields
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Reply, Share, run_all, serve, shares
from paceline.vector.server import PRELOAD, EnvServer, News, StepOrder, VectorProgram

Packed: TypeAlias = Any
"""Result of `Channel.pack`; None for a plain step."""


class Channel(Protocol):
    """Connects to one or more processes with envs. Not thread-safe."""

    num_workers: int
    """Worker processes; 0 if the envs are in this process."""
    memory: Arrays
    """Holds the program's fields."""
    shares: list[Share]
    """The envs of each worker; here a group is one env."""

    def pack(self, order: StepOrder) -> Packed:
        """Serialise an order for `begin`. An order that cannot be pickled raises here, before any worker has begun."""

    def begin(self, worker: int, order: Packed) -> None:
        """Tell an idle worker to step or reset those of its envs that are marked in `due`. Does not block."""

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:
        """Block until at least `at_least` of these workers are done; returns all that are done.

        Raises:
            WorkerError: A worker failed, died or missed its deadline.
            EnvError: An env of this process failed.
        """

    def news(self, worker: int) -> list[News]:
        """Infos and variable-size observations of a worker that is done. Call it once per step."""

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, TaskOutcome]:
        """Call `do(env, index)` for each of these envs, in its process. All workers must be idle. Blocks."""

    def pids(self) -> list[int]:
        """The workers' process ids."""

    def close(self) -> None:
        """Close the envs and end the workers. Idempotent, returns within seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """How workers are started, and their timeouts."""

    start_method: StartMethod | None
    cores: list[int] | None
    env_timeout_s: float
    start_timeout_s: float


class ProcessChannel:
    """Envs in worker processes, which a doorbell wakes for every step.

    Args:
        program: The program that workers run.
        num_workers: Number of workers.
        how: Start method, cores and timeouts.
    """

    def __init__(self, program: VectorProgram, num_workers: int, how: Processes) -> None:
        self.num_workers = num_workers
        self.shares = shares(program.num_envs, num_workers)
        self._arena = Arena.create([*program.fields(num_workers), *doorbell_fields(num_workers)])
        try:
            self._runtime = ProcessRuntime(
                program,
                self._arena,
                program.num_envs,
                num_workers,
                start_method=how.start_method,
                preload=PRELOAD,
                cores=how.cores,
                start_timeout_s=how.start_timeout_s,
                step_timeout_s=how.env_timeout_s,
                doorbells=True,
                unit="envs",
            )
        except BaseException:
            self._arena.close()
            raise
        self._doorbells = self._runtime.doorbells
        self.memory: Arrays = self._arena
        self._serving: list[Reply[None]] = []  # empty while workers wait for calls

    def pack(self, order: StepOrder) -> Packed:
        """Pickle the order as the doorbell's payload."""
        return None if order is None else cloudpickle.dumps(order)

    def begin(self, worker: int, order: Packed) -> None:
        """Notify the worker by its doorbell; the first call puts all workers into the `serve` loop."""
        if not self._serving:
            self._serving = self._runtime.submit_all(serve)
        self._doorbells.notify(worker, order or b"")

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:
        """Block until at least `at_least` workers have replied."""
        return self._doorbells.wait(workers, at_least=at_least, timeout_s=math.inf, doing=doing)

    def news(self, worker: int) -> list[News]:
        """Unpickle the payload of the worker's reply."""
        payload = self._doorbells.payload(worker)
        news: list[News] = pickle.loads(payload) if payload else []
        return news

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, TaskOutcome]:
        """Leave the `serve` loop, then run a normal command; the next `begin` enters the loop again."""
        packed = cloudpickle.dumps((do, envs))
        if self._serving:
            self._doorbells.rest()
            self._runtime.wait(self._serving, all=True)
            self._serving = []
        answers = run_all(self._runtime, EnvServer.apply, packed)
        return {number: outcome for answer in answers for number, outcome in pickle.loads(answer)}

    def pids(self) -> list[int]:
        """The workers' process ids."""
        return self._runtime.pids()

    def close(self) -> None:
        """End the workers."""
        self._runtime.close()
        self._arena.close()


class InlineChannel:
    """Envs in this process: `begin` stores the order, `wait` executes it.

    Args:
        program: The program that makes and steps the envs.
    """

    def __init__(self, program: VectorProgram) -> None:
        self.num_workers = 0
        self.shares = shares(program.num_envs, 0)
        fields = {field.name: np.zeros(field.shape, field.dtype) for field in program.fields(0)}
        self.memory: Arrays = fields
        self._server: EnvServer = program(fields, self.shares[0])
        self._order: StepOrder = None
        self._begun = False
        self._news: list[News] = []

    def pack(self, order: StepOrder) -> Packed:
        """Nothing to serialise in the same process."""
        return order

    def begin(self, worker: int, order: Packed) -> None:  # noqa: ARG002 - there is one
        """Store the order for `wait`."""
        self._order, self._begun = order, True

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:  # noqa: ARG002 - there is one
        """Execute the stored order. Blocks while the envs step."""
        if self._begun:
            self._begun = False
            self._news = self._server.act(self._order)
        return list(workers)

    def news(self, worker: int) -> list[News]:  # noqa: ARG002 - there is one
        """Infos and variable-size observations of the last step."""
        news, self._news = self._news, []
        return news

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, TaskOutcome]:
        """Call the function in this process."""
        return dict(self._server.ask(do, envs))

    def pids(self) -> list[int]:
        """Empty: there are no workers."""
        return []

    def close(self) -> None:
        """Close the envs."""
        self._server.close()


def own_error(error: BaseException) -> Exception | None:
    """The exception that an env raised in `step` or `reset`, to be raised from `error`.

    None if no env raised, or if its exception could not be sent to this process.

    Args:
        error: What the channel raised. It names worker, env, step and action; its first line is added as a note.
    """
    own = error.__cause__
    if not isinstance(error, EnvError | WorkerError) or not isinstance(own, Exception):
        return None
    if isinstance(own, PacelineError):  # a rule of Paceline that the env broke, such as the shape of its observation
        return None
    error.__cause__ = error.__context__ = None  # otherwise each would be the cause of the other
    own.add_note(str(error).splitlines()[0])
    return own

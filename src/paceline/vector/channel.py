"""The way to the envs: in worker processes, or in this one.

begin(worker, order) ... wait(workers) ... news(worker)      one ring per worker and step
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

from paceline.envs.env_thread import Outcome
from paceline.envs.make import Env
from paceline.memory.shared import Arena, Arrays
from paceline.runtime.bells import bell_fields
from paceline.runtime.forkserver import StartMethod
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Share, shares
from paceline.vector.server import PRELOAD, EnvServer, News, Order, VectorProgram

Packed: TypeAlias = Any
"""What `Channel.pack` made of an order; None for a plain step."""


class Channel(Protocol):
    """One or more processes with envs. Not to be used from several threads."""

    num_workers: int
    """Processes; 0 where the envs are in this one."""
    memory: Arrays
    """Holds the program's fields."""
    shares: list[Share]
    """Which envs each worker has: a group is one env."""
    rings: list[int]
    """How often each worker was woken to step or reset envs."""

    def pack(self, order: Order) -> Packed:
        """An order as `begin` takes it; what cannot be sent is found here, before anything has begun."""

    def begin(self, worker: int, order: Packed) -> None:
        """Have a worker step or reset those of its envs that are due. It must not be at it already."""

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:
        """Those that are done, when so many are.

        Raises:
            WorkerError: A worker failed, died or missed its deadline.
            EnvError: An env of this process failed.
        """

    def news(self, worker: int) -> list[News]:
        """What a worker that is done has to tell beside the arrays; to be read once."""

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, Outcome]:
        """Call a function with each of these envs and its index. No worker may be at anything else."""

    def pids(self) -> list[int]:
        """The workers' process ids."""

    def close(self) -> None:
        """Close the envs and end the workers. Idempotent, returns within seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """How workers are started and how patient one is with them."""

    start_method: StartMethod | None
    cores: list[int] | None
    env_timeout_s: float
    start_timeout_s: float


class ProcessChannel:
    """Envs in worker processes, rung by bells.

    Args:
        program: What they run.
        num_workers: How many.
        how: The rest.
    """

    def __init__(self, program: VectorProgram, num_workers: int, how: Processes) -> None:
        self.num_workers = num_workers
        self.shares = shares(program.num_envs, num_workers)
        self._arena = Arena.create([*program.fields(num_workers), *bell_fields(num_workers)])
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
                bells=True,
                unit="envs",
            )
        except BaseException:
            self._arena.close()
            raise
        self._bells = self._runtime.bells
        self.rings = self._bells.rings
        self.memory: Arrays = self._arena
        self._serving = False

    def pack(self, order: Order) -> Packed:
        """A letter."""
        return None if order is None else cloudpickle.dumps(order)

    def begin(self, worker: int, order: Packed) -> None:
        """Ring its bell."""
        if not self._serving:
            self._runtime.start("serve")
            self._serving = True
        self._bells.ring(worker, order or b"")

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:
        """Those that have answered."""
        return self._bells.wait(workers, at_least=at_least, timeout_s=math.inf, doing=doing)

    def news(self, worker: int) -> list[News]:
        """The letter that came with the answer."""
        letter = self._bells.letter(worker)
        news: list[News] = pickle.loads(letter) if letter else []
        return news

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, Outcome]:
        """By command, between two servings."""
        packed = cloudpickle.dumps((do, envs))
        if self._serving:
            self._bells.rest()
            self._runtime.finish()
            self._serving = False
        answers = self._runtime.run("apply", packed)
        return {number: outcome for answer in answers for number, outcome in pickle.loads(answer)}

    def pids(self) -> list[int]:
        """The workers' process ids."""
        return self._runtime.pids()

    def close(self) -> None:
        """End the workers."""
        self._runtime.close()
        self._arena.close()


class InlineChannel:
    """Envs in this process: what is begun is done when somebody waits for it.

    Args:
        program: What to make.
    """

    def __init__(self, program: VectorProgram) -> None:
        self.num_workers = 0
        self.shares = shares(program.num_envs, 0)
        self.rings = [0]
        fields = {field.name: np.zeros(field.shape, field.dtype) for field in program.fields(0)}
        self.memory: Arrays = fields
        self._server: EnvServer = program(fields, self.shares[0])
        self._order: Order = None
        self._begun = False
        self._news: list[News] = []

    def pack(self, order: Order) -> Packed:
        """As it is."""
        return order

    def begin(self, worker: int, order: Packed) -> None:
        """Remember it."""
        self.rings[worker] += 1
        self._order, self._begun = order, True

    def wait(self, workers: Collection[int], *, at_least: int, doing: str) -> list[int]:  # noqa: ARG002 - there is one
        """Do it."""
        if self._begun:
            self._begun = False
            self._news = self._server.act(self._order)
        return list(workers)

    def news(self, worker: int) -> list[News]:  # noqa: ARG002 - there is one
        """What the envs had to tell."""
        news, self._news = self._news, []
        return news

    def ask(self, do: Callable[[Env, int], Any], envs: Sequence[int]) -> dict[int, Outcome]:
        """Right here."""
        return dict(self._server.ask(do, envs))

    def pids(self) -> list[int]:
        """None."""
        return []

    def close(self) -> None:
        """Close the envs."""
        self._server.close()

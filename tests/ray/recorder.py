"""The contract suite's recorder on a Ray cluster."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tests.contract.runtimes import Running
from tests.jobs import GROUPS, Recorder, fields

from paceline.memory.shared import Arena, Field
from paceline.runtime.protocol import Program, Share
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.runtime import RayRuntime
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange


@dataclass(frozen=True)
class RecorderTransfer:
    """Sends the mode with every call, and returns the logs of the workers."""

    builds: Program[Recorder] = Recorder

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        return fields(workers)

    def program(self, held: GroupRange) -> Program[Recorder]:
        return self.builds

    def loads(self, command: str) -> tuple[str, ...]:
        return ("mode",)

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        return None

    def down(self, load: str, arena: Arena, held: GroupRange | None, pool: Sequence[Share]) -> Iterator[NDArray[Any]]:
        yield arena["mode"]

    def up(
        self, call: ExecutedCall, arena: Arena, held: GroupRange | None, pool: Sequence[Share]
    ) -> Iterator[NDArray[Any]]:
        for share in pool:
            yield arena["log"][share.worker]

    def trimmed(self, command: str, args: tuple[Any, ...], pool: Sequence[Share]) -> tuple[Any, ...]:
        return args

    def posted(self, arena: Arena, worker: int, command: str, args: tuple[Any, ...]) -> None:
        return


@contextmanager
def running(
    nodes: int = 1, workers: int = 2, program: Program[Recorder] = Recorder, **options: Any
) -> Iterator[Running]:
    """Start a runtime on the session's cluster. A recorder in the driver computes the items of `work`."""
    arena = Arena.create(fields(nodes * workers))
    own = Recorder(arena, Share(0, 0, GROUPS))
    runtime: RayRuntime[Recorder] | None = None
    try:
        cluster = RayCluster(address="auto", nodes=nodes, workers_per_node=workers, groups=GROUPS)
        runtime = RayRuntime(RecorderTransfer(program), arena, GROUPS, cluster, local_gradient=own.work, **options)
        yield Running("ray", runtime, arena)
    finally:
        if runtime is not None:
            runtime.close()
        arena.close()

"""Pools of recorders on loopback nodes, for tests of placement, dispatch and nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import cloudpickle
from numpy.typing import NDArray
from tests.jobs import Recorder, fields

from paceline.memory.shared import Arena, Field
from paceline.runtime.protocol import Program, Share
from paceline.runtime.ray.node_pool import NodePoolSetup
from paceline.runtime.ray.transfer import ExecutedCall, GroupRange

GROUPS = 4


class RecorderTransfer:
    """Sends the mode to the nodes, with a token that the test sets, and returns the logs of the workers."""

    def __init__(self, token: Hashable = None) -> None:
        self.current = token

    def fields(self, held: GroupRange, workers: int) -> list[Field]:
        return fields(workers)

    def program(self, held: GroupRange) -> Program[Recorder]:
        return Recorder

    def loads(self, command: str) -> tuple[str, ...]:
        return ("mode",) if command != "share" else ()

    def token(self, load: str, arena: Arena, command: int) -> Hashable:
        return self.current

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


def setup(first_group: int, groups: int, workers: int) -> NodePoolSetup:
    return NodePoolSetup(
        first_group=first_group,
        groups=groups,
        workers=workers,
        start_method="fork",
        preload=(),
        start_timeout_s=60.0,
        step_timeout_s=60.0,
    )


def packed(token: Hashable = None) -> bytes:
    transfer: bytes = cloudpickle.dumps(RecorderTransfer(token))
    return transfer

"""Starts runtimes of every kind for tests, and waits for replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from tests.jobs import GROUPS, Recorder, fields

from paceline.memory.shared import Arena
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Program, Reply, Runtime

KINDS = ("inline", "forkserver", "spawn", "fork")


SLOW_SPAWN = pytest.param("spawn", marks=pytest.mark.slow)
"""A spawned worker takes seconds to start, so most tests with spawn run only with `make test-slow`."""


WORKERS = 2


R = TypeVar("R")


@dataclass
class Running:
    kind: str
    runtime: Runtime[Recorder]
    arena: Arena

    @property
    def jobs(self) -> int:
        return max(1, self.runtime.num_workers)


@contextmanager
def running(
    kind: str, workers: int = WORKERS, program: Program[Recorder] = Recorder, **options: Any
) -> Iterator[Running]:
    workers = 0 if kind == "inline" else workers
    arena = Arena.create(fields(workers))
    runtime: Runtime[Recorder] | None = None
    try:
        if kind == "inline":
            runtime = InlineRuntime(program, arena, GROUPS)
        else:
            method: Any = kind
            runtime = ProcessRuntime(program, arena, GROUPS, workers, start_method=method, **options)
        yield Running(kind, runtime, arena)
    finally:
        if runtime is not None:
            runtime.close()
        arena.close()


def results(runtime: Runtime[Any], replies: list[Reply[R]]) -> list[R]:
    """Wait for all replies and return their results."""
    return [reply.result() for reply in runtime.wait(replies, all=True)]


def taken(runtime: Runtime[Any], pending: list[Reply[R]], timeout_s: float) -> list[tuple[int, R]]:
    """Wait for any reply; returns worker and result of those that are done, and removes them from `pending`."""
    done = runtime.wait(pending, all=False, timeout_s=timeout_s)
    for reply in done:
        pending.remove(reply)
    return [(reply.worker, reply.result()) for reply in done]


def take_all(runtime: Runtime[Any], pending: list[Reply[Any]], answers: list[Any]) -> None:
    for _ in range(100):
        answers += taken(runtime, pending, 0.1)

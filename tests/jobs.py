"""Jobs for tests of runtimes, importable by worker processes without pytest."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from paceline.envs.fault import OddError
from paceline.errors import EnvError
from paceline.memory.shared import Arena, Field
from paceline.memory.worker_status import BEAT, heartbeat_field
from paceline.runtime.protocol import Share

GROUPS = 5
STUCK, RAISE, DIE, HANG = 1, 2, 3, 4
"""Modes of `Recorder.work`: what it does besides counting."""


def fields(workers: int) -> list[Field]:
    """Return the arena fields of the jobs below."""
    return [
        Field.of("log", (max(1, workers), 16), np.int64),
        Field.of("closed", (max(1, workers),), np.int64),
        Field.of("items", (max(1, workers), 127), np.int64),
        Field.of("mode", (1,), np.int64),
        heartbeat_field(workers),
    ]


class Recorder:
    """Records calls in shared memory, and can fail in several ways."""

    def __init__(self, arena: Arena, share: Share) -> None:
        self._log, self._closed = arena["log"][share.worker], arena["closed"][share.worker :]
        self._beat = arena["heartbeat"][share.worker]
        self._share, self._count = share, 0
        self._items, self._mode = arena["items"][share.worker], arena["mode"]

    def note(self, value: int) -> int:
        """Append to this worker's log; returns the number of entries."""
        self._log[self._count] = value
        self._count += 1
        return self._count

    def share(self) -> tuple[int, int, int]:
        """Return worker, first group and number of groups."""
        return self._share.worker, self._share.first_group, self._share.groups

    def helps(self) -> bool:
        """Return whether this worker computes items of `work`."""
        return self._share.helps

    def slowest_first(self) -> int:
        """Return the worker's index; worker 0 answers last."""
        time.sleep(0.2 if self._share.worker == 0 else 0.0)
        return self._share.worker

    def work(self, item: int) -> None:
        """Count the item, and fail or hang in some modes."""
        mode, mine = int(self._mode[0]), self._share.worker == 0
        if mode == STUCK and mine:
            time.sleep(1.0)
        if mode == RAISE and item == 1:
            raise RuntimeError("item 1 failed")
        if mode == DIE and item == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == HANG and item == 1:
            time.sleep(60)
        self._items[item] += 1

    def last_takes_its_time(self, seconds: float) -> int:
        """The last worker sends heartbeats for this long, the others answer at once."""
        end = time.monotonic() + seconds
        self._beat[BEAT] += 1
        while self._share.first_group + self._share.groups == GROUPS and time.monotonic() < end:
            self._beat[BEAT] += 1
            time.sleep(0.05)
        return self._share.worker

    def cores(self) -> set[int]:
        """Return the cores that this process may use during a call."""
        return os.sched_getaffinity(0)

    def scheduler(self) -> int:
        """Return the scheduling policy of this process."""
        return os.sched_getscheduler(0)

    def echo(self, *args: Any) -> tuple[Any, ...]:
        """Return the arguments."""
        return args

    def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    def threads(self) -> tuple[int, int, str | None]:
        """Return torch threads, BLAS threads, and OMP_NUM_THREADS, which child processes inherit."""
        import torch

        from paceline.system.threads import blas_threads

        return torch.get_num_threads(), blas_threads(), os.environ.get("OMP_NUM_THREADS")

    def affinity(self) -> list[int]:
        """Return the cores that this process may use, sorted."""
        return sorted(os.sched_getaffinity(0))

    def fail(self, worker: int, how: str) -> None:
        """Fail in one worker."""
        if self._share.worker != worker:
            return
        match how:
            case "raise":
                raise ValueError("nonsense in the job")
            case "odd":
                raise OddError("odd in the job", 42)
            case "env":
                raise EnvError("env 3 raised in step 4 with action 1: KeyError: 'x'. Look at it.")
            case "textless":
                raise TextlessError
            case "exit":
                os._exit(7)
            case "sys_exit":
                raise SystemExit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "sleep":
                time.sleep(3600)

    def beat(self, times: int, pause_s: float) -> int:
        """Take long, but send heartbeats."""
        for _ in range(times):
            time.sleep(pause_s)
            self._beat[0] += 1
        return times

    def close(self) -> None:
        """Count the call."""
        self._closed[0] += 1


class TextlessError(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class OneFails:
    """Builds recorders, but raises for one worker."""

    def __init__(self, worker: int) -> None:
        self._worker = worker

    def __call__(self, arena: Arena, share: Share) -> Recorder:
        """Raise in that worker."""
        if share.worker == self._worker:
            raise ValueError(f"no job for worker {share.worker}")
        return Recorder(arena, share)


class Answering(Recorder):
    """Answers payloads reversed; some payloads make it fail, hang or wait."""

    def __init__(self, arena: Arena, share: Share) -> None:
        super().__init__(arena, share)
        self._answers = 0

    def answer(self, payload: bytes) -> bytes:
        """Answer one notification."""
        self._answers += 1
        self._beat[0] += 1
        match payload:
            case b"!raise":
                raise ValueError("asked to")
            case b"!die":
                os.kill(os.getpid(), signal.SIGKILL)
            case b"!hang":
                time.sleep(3600)
            case b"!hold":
                while not self._mode[0]:
                    time.sleep(0.001)
            case b"!free":
                self._mode[0] = 1
        return payload[::-1]

    def answers(self) -> int:
        """Return the number of notifications answered."""
        return self._answers

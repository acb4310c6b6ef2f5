"""Several trainings side by side: a process for each seed, cores and devices dealt out to those that run at once.

    slot 0 (cores 0-1, cuda:0)   seed 0 -> seed 2 -> seed 4      whoever has ended makes room for the next
    slot 1 (cores 2-3, cuda:1)   seed 1 -> seed 3

Children are ordinary `paceline train` commands that know nothing of each other. Each has a process group of its own,
so that a Ctrl-C of the terminal does not reach it: it is passed on from here, once, since the second would end a run
without a checkpoint. Should this process die, the kernel ends the children as a SIGTERM does, checkpoint included.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any, Literal

import numpy as np

from paceline.errors import ConfigError
from paceline.insight.runs.results import read_run
from paceline.measure.folder import to_json, write_atomic
from paceline.system.limits import affinity, cpu_quota

POLL_S = 0.1
MOST_SEEDS = 1000
TAIL = 1 << 14
"""Bytes at the end of a log that are looked at."""
NUMBERS = ("final_eval", "best_eval", "steps", "fps", "wall_s")
"""What is told of each seed, and of all together."""
COLUMNS = ("seed", "state", "exit_code", *NUMBERS, "device", "cores", "folder", "log")
SUMMARY_JSON, SUMMARY_CSV = "seeds.json", "seeds.csv"

SeedState = Literal["waiting", "running", "finished", "stopped", "failed"]

STOPPED = {128 + number for number in (signal.SIGINT, signal.SIGTERM)} | {-signal.SIGINT, -signal.SIGTERM}
"""Exit codes of a run that a signal has ended, with its checkpoint or before it had anything to save."""

TIE = """
import ctypes, os, signal, sys
parent, cores, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(parent):
    os.sched_setaffinity(0, map(int, cores.split(",")))
    os.execvp(command[0], command)
"""
"""Becomes the command, on these cores, with a SIGTERM to come when the parent dies (1 is PR_SET_PDEATHSIG).

A program of its own rather than `preexec_fn`, which may deadlock in a process that has threads."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What one child at a time may use."""

    cores: tuple[int, ...]
    """Empty: whatever this process may."""
    device: str | None = None
    """Passed on as `--device`; None leaves it to the command."""


@dataclass(kw_only=True, slots=True)
class SeedRun:
    """The training of one seed: what is to be run, and how it goes."""

    seed: int
    folder: Path
    """The run's."""
    log: Path
    """What the child says goes there."""
    command: tuple[str, ...]
    state: SeedState = "waiting"
    exit_code: int | None = None
    slot: Slot | None = None
    """Where it runs, or ran."""
    began: float = field(default=0.0, repr=False)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    told: int = field(default=0, repr=False)
    """How many of the signals it was sent."""

    @property
    def running_s(self) -> float:
        """Seconds since it was started."""
        return perf_counter() - self.began


class SeedRuns:
    """Runs jobs, one in each slot at a time, in their order. Owns the processes: close it.

    Args:
        jobs: What is to be done.
        slots: Where.
    """

    def __init__(self, jobs: Sequence[SeedRun], slots: Sequence[Slot]) -> None:
        self.jobs = list(jobs)
        self.signals: list[int] = []
        """Those that came; the next step passes them on."""
        self._waiting, self._free = deque(self.jobs), deque(slots)

    def run(self, watch: Callable[[], None]) -> None:
        """Do all of it, passing SIGINT and SIGTERM on. Waits until no child is left, as long as that takes.

        Args:
            watch: Called ten times a second.
        """
        # The handler only takes a note: it may come in the middle of a start, before there is anybody to be told.
        with _caught(self.signals.append):
            try:
                while self.step():
                    watch()
                    time.sleep(POLL_S)
                watch()
            finally:
                self.close()

    def step(self) -> bool:
        """Notice who has ended, pass signals on, and start who is next: nobody, after a signal.

        Returns:
            Whether anybody runs.
        """
        for job, process in self._running():
            if (code := process.poll()) is None:
                self._tell(job, process)
                continue
            job.exit_code = code
            job.state = "finished" if code == 0 else "stopped" if code in STOPPED else "failed"
            if job.slot is not None:
                self._free.append(job.slot)
        while self._waiting and self._free and not self.signals:
            self._start(self._waiting.popleft(), self._free.popleft())
        return bool(self._running())

    def close(self) -> None:
        """Kill whoever still runs."""
        for job, process in self._running():
            process.kill()
            job.exit_code, job.state = process.wait(), "failed"

    @property
    def exit_code(self) -> int:
        """Of the whole: 130 or 143 after a signal, 1 if a seed has not finished, else 0."""
        if self.signals:
            return 128 + self.signals[0]
        return int(any(job.state != "finished" for job in self.jobs))

    def _running(self) -> list[tuple[SeedRun, subprocess.Popen[bytes]]]:
        return [(job, job.process) for job in self.jobs if job.state == "running" and job.process is not None]

    def _tell(self, job: SeedRun, process: subprocess.Popen[bytes]) -> None:
        """Pass on what it has not been told. The first signal stops a run, the second at once, the third kills it."""
        for count, number in enumerate(self.signals[job.told :], job.told + 1):
            process.send_signal(number if count < 3 else signal.SIGKILL)
            job.told = count

    def _start(self, job: SeedRun, slot: Slot) -> None:
        device = () if slot.device is None else ("--device", slot.device)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "wb") as log:
            job.process = subprocess.Popen(
                tied([*job.command, *device], slot.cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        job.slot, job.state, job.began = slot, "running", perf_counter()


def tied(command: Sequence[str], cores: Sequence[int]) -> list[str]:
    """A command that stays on these cores and ends with this process; as it is on other systems than Linux."""
    if sys.platform != "linux":
        return list(command)
    allowed = ",".join(map(str, cores or affinity()))
    return [sys.executable, "-I", "-S", "-c", TIE, str(os.getpid()), allowed, *command]


@contextmanager
def _caught(handle: Callable[[int], object]) -> Iterator[None]:
    """Hand SIGINT and SIGTERM to a function meanwhile. Only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def caught(number: int, _frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.signal(number, caught) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def allowed_cores() -> list[int]:
    """The cores that children may share: those of this process, and no more of them than the control group's quota.

    As `runtime.threads.core_budget` counts them, which would load torch.
    """
    cores, quota = affinity(), cpu_quota()
    return cores[: max(1, math.floor(quota))] if quota else cores


def make_slots(at_once: int, cores: Sequence[int], devices: Sequence[str] = ()) -> list[Slot]:
    """Deal cores out as evenly as possible, and devices in turn. With more slots than cores, some share one."""
    n = len(cores)
    if at_once > n:
        shares = [cores[i % n : i % n + 1] for i in range(at_once)]
    else:
        shares = [cores[i * n // at_once : (i + 1) * n // at_once] for i in range(at_once)]
    return [Slot(tuple(share), devices[i % len(devices)] if devices else None) for i, share in enumerate(shares)]


def read_seeds(text: str) -> tuple[int, ...]:
    """The seeds that `0..5` (both ends included), `0,3,7` or a mix of the two names.

    Raises:
        ConfigError: It names none, or one twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", part.strip(), re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**63 or last - first >= MOST_SEEDS:
            raise ConfigError(
                f"seeds={text!r}: must be whole numbers from 0 on, at most {MOST_SEEDS} ({part!r} is not). "
                "Write 0..5 or 0,3,7."
            )
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={text!r}: names a seed twice. Write each once.")
    return tuple(seeds)


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a file that say something; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]


def numbers(job: SeedRun) -> dict[str, float | None]:
    """What a job's run has come to, by `NUMBERS`; None is what its folder does not know."""
    if job.state not in ("finished", "stopped"):
        return dict.fromkeys(NUMBERS)
    try:
        result = read_run(job.folder)
    except ConfigError:
        return dict.fromkeys(NUMBERS)  # stopped before there was anything to tell
    return {name: getattr(result, name) for name in NUMBERS}


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over seeds."""

    mean: float
    std: float | None
    """Sample standard deviation (n - 1); None for a single value."""
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Of some values; None of none."""
        if not values:
            return None
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))


@dataclass(frozen=True, slots=True)
class ManySummary:
    """What came of all seeds."""

    rows: tuple[Mapping[str, Any], ...]
    """For each seed, by `COLUMNS`."""
    over_seeds: Mapping[str, Spread | None]
    """By `NUMBERS`; of the seeds that have finished."""

    @classmethod
    def of(cls, jobs: Sequence[SeedRun]) -> ManySummary:
        """Read what the runs have left."""
        rows = [_row(job) for job in jobs]
        finished = [row for row in rows if row["state"] == "finished"]
        values = {name: [row[name] for row in finished if row[name] is not None] for name in NUMBERS}
        return cls(tuple(rows), {name: Spread.of(found) for name, found in values.items()})

    def write(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Put seeds.json and seeds.csv there.

        Args:
            folder: Which is there.
            about: What else is to be told.
        """
        content = {**about, "seeds": self.rows, "over_seeds": self.over_seeds}
        write_atomic(folder / SUMMARY_JSON, to_json(content))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([["" if row[name] is None else row[name] for name in COLUMNS] for row in self.rows])
        write_atomic(folder / SUMMARY_CSV, text.getvalue())


def _row(job: SeedRun) -> dict[str, Any]:
    slot = job.slot
    return {
        "seed": job.seed,
        "state": job.state,
        "exit_code": job.exit_code,
        **numbers(job),
        "device": None if slot is None else slot.device,
        "cores": None if slot is None else " ".join(map(str, slot.cores)),
        "folder": str(job.folder),
        "log": str(job.log),
    }

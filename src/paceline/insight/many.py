"""Runs several trainings in parallel, one process per seed, and assigns CPU cores and devices to them.

    slot 0 (cores 0-1, cuda:0)   seed 0 -> seed 2 -> seed 4      when a run ends, the next seed takes its slot
    slot 1 (cores 2-3, cuda:1)   seed 1 -> seed 3

Children are independent `paceline train` commands. Each has its own process group, so that a Ctrl-C in the terminal
does not reach it directly. This process forwards the signal once, because a second signal would end a run without a
checkpoint. If this process dies, the kernel sends SIGTERM to the children, which then write a checkpoint and end.
"""

from __future__ import annotations

import csv
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from paceline.errors import ConfigError
from paceline.insight.runs.results import read_run
from paceline.measure.folder import to_json, write_output
from paceline.system.limits import affinity
from paceline.system.signals import STOPPING, handled_by

POLL_S = 0.1
MOST_SEEDS = 1000
TAIL = 1 << 14
"""Bytes read from the end of a log."""
NUMBERS = ("final_eval", "best_eval", "steps", "fps", "wall_s")
"""Numbers in the summary: one value per seed, mean and standard deviation over seeds."""
COLUMNS = ("seed", "state", "exit_code", *NUMBERS, "device", "cores", "folder", "log")
SUMMARY_JSON, SUMMARY_CSV = "seeds.json", "seeds.csv"

SeedState = Literal["waiting", "running", "finished", "stopped", "failed"]

STOPPED = {code for number in STOPPING for code in (128 + number, -number)}
"""Exit codes of a run that a signal has ended, with or without a checkpoint."""

LAUNCHER = """
import ctypes, os, signal, sys
parent, cores, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(parent):
    os.sched_setaffinity(0, map(int, cores.split(",")))
    os.execvp(command[0], command)
"""
"""Python program that sets CPU affinity and the parent-death signal (PR_SET_PDEATHSIG is 1), then execs the command.

A program of its own instead of `preexec_fn`, which may deadlock in a process that has threads."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Resources of one child at a time."""

    cores: tuple[int, ...]
    """Empty: all cores allowed to this process."""
    device: str | None = None
    """Passed to the child as `--device`; None adds no flag."""


@dataclass(kw_only=True, slots=True)
class SeedRun:
    """The training of one seed: its command and its state."""

    seed: int
    folder: Path
    """Run folder."""
    log: Path
    """File for stdout and stderr of the child."""
    command: tuple[str, ...]
    state: SeedState = "waiting"
    exit_code: int | None = None
    slot: Slot | None = None
    """The slot it was started in; None while it waits."""
    began: float = field(default=0.0, repr=False)
    """When the child was started, by `perf_counter`."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    signals_sent: int = field(default=0, repr=False)
    """Number of received signals that were forwarded to this child."""


class SeedRuns:
    """Runs jobs in their order, one per slot at a time. Owns the child processes: call `close`, unless `run` returned.

    Args:
        jobs: The trainings to run.
        slots: The slots to run them in.
    """

    def __init__(self, jobs: Sequence[SeedRun], slots: Sequence[Slot]) -> None:
        self.jobs = list(jobs)
        self.signals: list[int] = []
        """Signals received so far; the next `step` forwards the new ones."""
        self._waiting, self._free = deque(self.jobs), deque(slots)

    def run(self, watch: Callable[[], None]) -> None:
        """Run all jobs and forward SIGINT and SIGTERM. Blocks until the last child has ended, without a timeout.

        Args:
            watch: Called ten times a second.
        """
        # The handler only records the signal, because it may interrupt the start of a child.
        with handled_by(self.signals.append):
            try:
                while self.step():
                    watch()
                    time.sleep(POLL_S)
                watch()
            finally:
                self.close()

    def step(self) -> bool:
        """Collect ended children, forward signals, and start waiting jobs in free slots (none after a signal).

        Returns:
            Whether a child is running.
        """
        for job, process in self._running():
            if (code := process.poll()) is None:
                self._forward_signals(job, process)
                continue
            job.exit_code = code
            job.state = "finished" if code == 0 else "stopped" if code in STOPPED else "failed"
            if job.slot is not None:
                self._free.append(job.slot)
        while self._waiting and self._free and not self.signals:
            self._start(self._waiting.popleft(), self._free.popleft())
        return bool(self._running())

    def close(self) -> None:
        """Kill the children that are still running."""
        for job, process in self._running():
            process.kill()
            job.exit_code, job.state = process.wait(), "failed"

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 130 or 143 after a signal, 1 if a seed has not finished, else 0."""
        if self.signals:
            return 128 + self.signals[0]
        return int(any(job.state != "finished" for job in self.jobs))

    def _running(self) -> list[tuple[SeedRun, subprocess.Popen[bytes]]]:
        return [(job, job.process) for job in self.jobs if job.state == "running" and job.process is not None]

    def _forward_signals(self, job: SeedRun, process: subprocess.Popen[bytes]) -> None:
        """Send the signals that this child has not got yet.

        The first signal stops a run with a checkpoint, the second stops it at once, the third kills it.
        """
        for count, number in enumerate(self.signals[job.signals_sent :], job.signals_sent + 1):
            process.send_signal(number if count < 3 else signal.SIGKILL)
            job.signals_sent = count

    def _start(self, job: SeedRun, slot: Slot) -> None:
        device = () if slot.device is None else ("--device", slot.device)
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open(job.log, "wb") as log:
            job.process = subprocess.Popen(
                launched([*job.command, *device], slot.cores),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        job.slot, job.state, job.began = slot, "running", perf_counter()


def launched(command: Sequence[str], cores: Sequence[int]) -> list[str]:
    """Wrap a command so that it runs on these cores and ends when this process dies. Unchanged outside Linux."""
    if sys.platform != "linux":
        return list(command)
    allowed = ",".join(map(str, cores or affinity()))
    return [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), allowed, *command]


def make_slots(at_once: int, cores: Sequence[int], devices: Sequence[str] = ()) -> list[Slot]:
    """Divide the cores among slots as evenly as possible and assign devices in turn. With too few cores, slots share.

    Args:
        at_once: Number of slots.
        cores: Cores to divide.
        devices: Devices to assign in turn; empty for none.
    """
    n = len(cores)
    if at_once > n:
        shares = [cores[i % n : i % n + 1] for i in range(at_once)]
    else:
        shares = [cores[i * n // at_once : (i + 1) * n // at_once] for i in range(at_once)]
    return [Slot(tuple(share), devices[i % len(devices)] if devices else None) for i, share in enumerate(shares)]


def read_seeds(text: str) -> tuple[int, ...]:
    """Parse seeds: `0..5` (both ends included), `0,3,7` or a mix.

    Raises:
        ConfigError: The text is not a list of seeds, or has a seed twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", part.strip(), re.ASCII)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**63 or last - first >= MOST_SEEDS:
            raise ConfigError(
                f"seeds={text!r}: must be non-negative integers, at most {MOST_SEEDS} of them ({part!r} is not). "
                "Write 0..5 or 0,3,7."
            )
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={text!r}: names a seed twice. Write each once.")
    return tuple(seeds)


def last_lines(path: Path, count: int) -> list[str]:
    """The last non-empty lines of a file; an empty list if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]


def numbers(job: SeedRun) -> dict[str, float | None]:
    """Results of a job, by the names in `NUMBERS`; None for values that its run folder does not have."""
    if job.state in ("finished", "stopped"):
        with suppress(ConfigError):  # stopped before the first iteration
            result = read_run(job.folder)
            return {name: getattr(result, name) for name in NUMBERS}
    return dict.fromkeys(NUMBERS)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of a number over seeds."""

    mean: float
    std: float | None
    """Sample standard deviation (n - 1); None for a single value."""
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Compute from values; None if there are none."""
        if not values:
            return None
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None, len(values))


@dataclass(frozen=True, slots=True)
class ManySummary:
    """Results of all seeds."""

    rows: tuple[Mapping[str, Any], ...]
    """One mapping per seed, with the keys of `COLUMNS`."""
    over_seeds: Mapping[str, Spread | None]
    """Statistics over the finished seeds, with the keys of `NUMBERS`."""

    @classmethod
    def of(cls, jobs: Sequence[SeedRun]) -> ManySummary:
        """Read the results from the run folders."""
        rows = [_row(job) for job in jobs]
        finished = [row for row in rows if row["state"] == "finished"]
        values = {name: [row[name] for row in finished if row[name] is not None] for name in NUMBERS}
        return cls(tuple(rows), {name: Spread.of(found) for name, found in values.items()})

    def write(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Write seeds.json and seeds.csv.

        Args:
            folder: Where to write them.
            about: Further content of seeds.json, e.g. the command.

        Raises:
            ConfigError: The folder is not writable.
        """
        content = {**about, "seeds": self.rows, "over_seeds": self.over_seeds}
        write_output(folder / SUMMARY_JSON, to_json(content), "output_dir")
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_output(folder / SUMMARY_CSV, text.getvalue(), "output_dir")


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

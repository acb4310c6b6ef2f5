"""Describes the machine of a run, and samples CPU and memory usage of the run's processes."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from paceline.measure.cpu import CpuMeter, CpuSupply, waited_s
from paceline.system.limits import affinity, cpu_quota, memory_limit_mb

VERSIONS_OF = ("paceline", "torch", "numpy", "gymnasium", "tensorboard")

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """CPU and memory usage of one process."""

    cpu_percent: float | None
    """Percent of one core since the previous sample; None in the first sample of a process."""
    memory_mb: float
    """See `Usage.memory_mb`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU and memory usage of the process tree in one sample."""

    cpu_percent: float
    """Percent of one core since the previous sample: 200 is two busy cores."""
    memory_mb: float
    """PSS (proportional set size): a page that n processes share counts as one n-th in each of them, so processes add
    up to the memory of all. Every memory figure of a run is PSS; on systems without it, the resident size."""
    each: Mapping[int, ProcessUsage] = field(default_factory=dict)
    """Usage by process id."""
    supply: CpuSupply | None = None
    """CPU time that the processes got since the previous sample; None in the first one."""

    @property
    def each_mb(self) -> dict[int, float]:
        """Memory by process id."""
        return {pid: one.memory_mb for pid, one in self.each.items()}

    def scalars(self) -> dict[str, float]:
        """Return the numbers by tag, without the prefix `system/`."""
        supply = {} if self.supply is None else self.supply.scalars()
        return {"cpu_percent": self.cpu_percent, "pss_mb": self.memory_mb, **supply}


class SystemSampler:
    """Samples the process tree from time to time, and keeps the memory peak.

    `sample` is called in every iteration and usually returns the previous sample. Finding the processes and reading
    their memory takes milliseconds per process, reading the CPU time of known ones microseconds. So the first happens
    less often, and both take at most 0.2 % of the time.

    Args:
        every_s: Shortest time between two samples.
    """

    SHARE = 0.002

    def __init__(self, every_s: float = 2.0) -> None:
        self.elsewhere_mb = 0.0
        """Memory of processes of the run on other machines, which is added to every sample."""
        self.peak_memory_mb = 0.0
        self._every_s = every_s
        self._root = psutil.Process()
        self._memory_mb: dict[psutil.Process, float] = {}
        self._cpu_s: dict[psutil.Process, float] = {}
        self._waited_s: dict[psutil.Process, float] = {}
        self._at = time.perf_counter()
        self._meter = CpuMeter(self._at)
        self._next_memory = self._next_cpu = 0.0
        self._usage = Usage(0.0, 0.0)
        self.sample()

    def sample(self, *, force: bool = False) -> Usage:
        """Return the newest sample, and take one if it is due; `force` takes one now."""
        now = time.perf_counter()
        if force or now >= self._next_memory:
            self._memory_mb = _memory_of_tree(self._root)
            self.peak_memory_mb = max(self.peak_memory_mb, sum(self._memory_mb.values()) + self.elsewhere_mb)
            self._next_memory = self._next_time(now)
        elif now < self._next_cpu:
            return self._usage
        now = time.perf_counter()
        self._sample_cpu(now)
        self._next_cpu = self._next_time(now)
        return self._usage

    def _next_time(self, began: float) -> float:
        return began + max(self._every_s, (time.perf_counter() - began) / self.SHARE)

    def supply(self) -> CpuSupply | None:
        """Return the CPU time that the processes got up to the last sample; None before the second one."""
        return self._meter.total.supply(len(self._meter.cores))

    def _sample_cpu(self, now: float) -> None:
        cpu_s: dict[psutil.Process, float] = {}
        for process in self._memory_mb:
            with suppress(psutil.Error, OSError):  # the process has ended
                times = process.cpu_times()
                cpu_s[process] = times.user + times.system
        waited = {process: s for process in cpu_s if not math.isnan(s := waited_s(process.pid))}
        elapsed_s, before, first = now - self._at, self._cpu_s, not self._cpu_s
        if first:
            self._meter = CpuMeter(now)
        # A process that is new since the last sample counts in full, one that has ended not at all.
        own_s = sum(max(0.0, s - before.get(process, 0.0)) for process, s in cpu_s.items())
        waiting_s = sum(s - self._waited_s.get(process, 0.0) for process, s in waited.items()) if waited else math.nan
        supply = None if first else self._meter(now, own_s, waiting_s)
        percent = 0.0 if supply is None else 100.0 * supply.own
        each = {
            process.pid: ProcessUsage(
                100.0 * max(0.0, s - before[process]) / elapsed_s if process in before and elapsed_s > 0 else None,
                self._memory_mb[process],
            )
            for process, s in cpu_s.items()
        }
        memory_mb = sum(one.memory_mb for one in each.values()) + self.elsewhere_mb
        self._usage = Usage(percent, memory_mb, each, supply)
        self._cpu_s, self._waited_s, self._at = cpu_s, waited, now


def system_info() -> dict[str, Any]:
    """Return machine and versions, for system_info.json. Contains neither host nor user name."""
    memory = psutil.virtual_memory()
    return {
        "cpu": cpu_model(),
        "cores": {
            "logical": psutil.cpu_count(),
            "physical": psutil.cpu_count(logical=False),
            "affinity": affinity(),
            "quota": cpu_quota(),
        },
        "memory_mb": round(memory.total / 2**20),
        "memory_available_mb": round(memory.available / 2**20),
        "memory_limit_mb": memory_limit_mb(),
        "shm_mb": _free_mb(Path("/dev/shm")),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in VERSIONS_OF},
        "threads": {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
    }


def cpu_model() -> str:
    """Return the name of the CPU."""
    try:
        for line in (PROC / "cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def tree_memory_mb(root: psutil.Process | None = None) -> float:
    """Return the memory of a process and its descendants in MB; shared pages count once (PSS) if readable."""
    return sum(_memory_of_tree(root or psutil.Process()).values(), 0.0)


def _memory_of_tree(root: psutil.Process) -> dict[psutil.Process, float]:
    """Return the memory in MB of a process and its descendants."""
    memory_mb = {}
    for process in _tree(root):
        with suppress(psutil.Error, OSError):  # the process has ended
            memory_mb[process] = _memory_mb(process)
    return memory_mb


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return [root]


def _memory_mb(process: psutil.Process) -> float:
    try:
        with open(PROC / str(process.pid) / "smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) / 1024
    except (OSError, ValueError, IndexError):
        pass
    return float(process.memory_info().rss) / 2**20


def _free_mb(path: Path) -> int | None:
    try:
        return round(psutil.disk_usage(str(path)).free / 2**20)
    except OSError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

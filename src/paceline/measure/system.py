"""The machine a run is on, and what the run takes of it."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

VERSIONS_OF = ("paceline", "torch", "numpy", "gymnasium", "tensorboard")

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What one process takes."""

    cpu_percent: float | None
    """None at the first look at it."""
    memory_mb: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process tree takes at one moment."""

    cpu_percent: float
    """Of one core, since the sample before: 200 is two cores busy."""
    memory_mb: float
    """Proportional (PSS) where the system tells it, so that shared pages count once; else resident."""
    processes: int
    each: Mapping[int, ProcessUsage] = field(default_factory=dict)
    """The same by process id."""

    def scalars(self) -> dict[str, float]:
        """By the names of the `system/` tags."""
        return {"cpu_percent": self.cpu_percent, "rss_mb": self.memory_mb}


class SystemSampler:
    """Samples the process tree now and then, and keeps the peak.

    `sample` is called in every iteration and mostly returns what it knows. To find the processes and read their
    memory takes milliseconds for each, to read the processor time of known ones microseconds: the first is done
    less often, and both are spaced to cost at most 0.2 % of the time.

    Args:
        every_s: The shortest time between two looks.
    """

    SHARE = 0.002

    def __init__(self, every_s: float = 2.0) -> None:
        self.peak_memory_mb = 0.0
        self._every_s = every_s
        self._root = psutil.Process()
        self._processes: list[psutil.Process] = []
        self._memory: dict[int, float] = {}
        self._cpu_s: dict[int, float] = {}
        self._at = 0.0
        self._next_memory = self._next_cpu = 0.0
        self._usage = Usage(0.0, 0.0, 0)
        self.sample()

    def sample(self, *, force: bool = False) -> Usage:
        """The newest look at the tree, no older than the spacing; `force` looks now."""
        now = time.perf_counter()
        if force or now >= self._next_memory:
            self._look_for_all()
            self._next_memory = self._next_look(now)
        elif now < self._next_cpu:
            return self._usage
        now = time.perf_counter()
        self._look_at_cpu(now)
        self._next_cpu = self._next_look(now)
        return self._usage

    def _next_look(self, began: float) -> float:
        return began + max(self._every_s, (time.perf_counter() - began) / self.SHARE)

    def _look_for_all(self) -> None:
        self._processes, self._memory = [], {}
        for process in _tree(self._root):
            try:
                self._memory[process.pid] = _memory_mb(process)
            except (psutil.Error, OSError):
                continue  # it ended meanwhile
            self._processes.append(process)
        self.peak_memory_mb = max(self.peak_memory_mb, sum(self._memory.values()))

    def _look_at_cpu(self, now: float) -> None:
        cpu_s: dict[int, float] = {}
        for process in self._processes:
            try:
                times = process.cpu_times()
            except (psutil.Error, OSError):
                continue
            cpu_s[process.pid] = times.user + times.system
        passed_s, before = now - self._at, self._cpu_s
        # A process that came since the last look counts in full, one that has gone not at all.
        busy_s = sum(max(0.0, s - before.get(pid, 0.0)) for pid, s in cpu_s.items())
        percent = 100.0 * busy_s / passed_s if before and passed_s > 0 else 0.0
        each = {
            pid: ProcessUsage(
                100.0 * max(0.0, s - before[pid]) / passed_s if pid in before and passed_s > 0 else None,
                self._memory[pid],
            )
            for pid, s in cpu_s.items()
        }
        self._usage = Usage(percent, sum(one.memory_mb for one in each.values()), len(each), each)
        self._cpu_s, self._at = cpu_s, now


def system_info() -> dict[str, Any]:
    """Machine and versions, for system_info.json. Names neither host nor user."""
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
    """The processor's name as the system gives it."""
    try:
        for line in (PROC / "cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Hardware"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def affinity() -> list[int]:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_quota() -> float | None:
    """Cores that the control group allows (2.5 is two and a half), None without a limit."""
    quotas = []
    for folder in _cgroups("cpu"):
        try:
            if (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text().strip()
                period = (folder / "cpu.cfs_period_us").read_text()
            if quota != "max" and int(quota) > 0:
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return min(quotas, default=None)


def memory_limit_mb() -> int | None:
    """Memory that the control group allows, None without a limit."""
    limits = []
    for folder in _cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                limits.append(int((folder / name).read_text()))
            except (OSError, ValueError):
                continue
    # "No limit" is a number near 2**63 in the older interface.
    return min((limit >> 20 for limit in limits if limit < 1 << 60), default=None)


def tree_memory_mb(root: psutil.Process | None = None) -> float:
    """Memory of a process and all below it, shared pages counted once (PSS) where readable."""
    total = 0.0
    for process in _tree(root or psutil.Process()):
        try:
            total += _memory_mb(process)
        except (psutil.Error, OSError):
            continue
    return total


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


def _cgroups(controller: str) -> list[Path]:
    """Folders of this process's control group and of those above it: each may set a limit."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3 or (parts[1] and controller not in parts[1].split(",")):
            continue
        top = CGROUP / parts[1] if parts[1] else CGROUP  # named controllers: the older interface
        below = Path(parts[2].lstrip("/"))
        # Inside a container the path may be the host's, and only the top is there.
        folders += [folder for folder in (top / below, *(top / p for p in below.parents)) if folder.is_dir()]
    return list(dict.fromkeys(folders))


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

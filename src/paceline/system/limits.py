"""Reads the resource limits of this process: CPU affinity, and the control group's CPU quota and memory limit."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def affinity() -> list[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cpu_quota() -> float | None:
    """Return the control group's CPU quota in cores (such as 2.5); None without a limit."""
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


def throttling() -> tuple[int, int]:
    """Return in how many time slices the CPU quota of the control group has stopped it, and the number of slices.

    Both are of the group, here or above, that was stopped most often; 0 without a quota.
    """
    found = [(0, 0)]
    for folder in _cgroups("cpu"):
        try:
            counts = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            found.append((int(counts["nr_throttled"]), int(counts["nr_periods"])))
        except (OSError, ValueError, KeyError):
            continue
    return max(found)


def allowed_cores() -> list[int]:
    """Return the cores to use: those of this process's CPU affinity, at most as many as the control group's quota."""
    cores, quota = affinity(), cpu_quota()
    return cores[: max(1, math.floor(quota))] if quota else cores


def memory_limit_mb() -> int | None:
    """Return the control group's memory limit in MB; None without a limit."""
    limits = []
    for folder in _cgroups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                limits.append(int((folder / name).read_text()))
            except (OSError, ValueError):
                continue
    # In cgroup v1, no limit is a number near 2**63.
    return min((limit >> 20 for limit in limits if limit < 1 << 60), default=None)


def _cgroups(controller: str) -> list[Path]:
    """Return the folders of this process's control group and of its parents: each may set a limit."""
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) != 3 or (parts[1] and controller not in parts[1].split(",")):
            continue
        top = CGROUP / parts[1] if parts[1] else CGROUP  # cgroup v1 names controllers, v2 does not
        below = Path(parts[2].lstrip("/"))
        # Inside a container the path may be that of the host, and only the top folder exists.
        folders += [folder for folder in (top / below, *(top / p for p in below.parents)) if folder.is_dir()]
    return list(dict.fromkeys(folders))

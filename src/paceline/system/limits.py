"""What this process may use of the machine: CPU affinity, and the control group's CPU quota and memory limit."""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PROC = Path("/proc")


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

"""Raises the soft limit of open files, since every worker uses some file descriptors of the driver."""

from __future__ import annotations

import os
import sys

from paceline.errors import ConfigError

if sys.platform != "win32":
    import resource

PER_WORKER = 6
"""Descriptors per worker: two pipes, its sentinel, its stack file, and two more while it starts."""
RESERVE = 48
"""Descriptors for CSV tables, logs, a checkpoint being written, and files that an env in this process opens."""


def make_room(workers: int) -> None:
    """Raise this process's soft limit of file descriptors if that many workers need it.

    Raises:
        ConfigError: The hard limit is too low.
    """
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _open_now() + PER_WORKER * workers + RESERVE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        fit = max(0, (hard - needed) // PER_WORKER + workers)
        raise ConfigError(
            f"num_workers={workers}: needs about {needed} file descriptors (hard limit {hard}). "
            f"Raise the limit (ulimit -n {needed}), or use --num-workers {fit}."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _open_now() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 16

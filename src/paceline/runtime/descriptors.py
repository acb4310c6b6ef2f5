"""Open files: every worker takes some of the driver's, and the limit may be low."""

from __future__ import annotations

import os
import sys

from paceline.errors import ConfigError

if sys.platform != "win32":
    import resource

PER_WORKER = 6
"""Two pipes, its sentinel and its stacks, and two more while it is being started."""
RESERVE = 48
"""For tables, logs, a checkpoint being written, and what the env in this process opens."""


def make_room(workers: int) -> None:
    """Raise this process's limit of open files if so many workers need that.

    Raises:
        ConfigError: It may not be raised as far.
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
            f"num_workers={workers}: needs about {needed} open files, and {hard} are allowed here. "
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

"""Core budget (how many cores this process may use) and thread limits of BLAS and torch.

If each of four workers starts one BLAS thread per core, parallel training becomes slower than sequential. So workers
inherit OMP_NUM_THREADS=1 and its kind before numpy and torch are loaded (`runtime.forkserver`), and `limit` sets the
threads of libraries that are already loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

import threadpoolctl
import torch

from paceline.errors import ConfigError
from paceline.system.limits import affinity, allowed_cores


def core_budget() -> int:
    """Return how many cores this process may use: those of its CPU affinity, at most the control group's quota."""
    return len(allowed_cores())


def pinned_cores(cores: Sequence[int]) -> list[int]:
    """Return the cores to pin workers to: `cores`, or all allowed cores if it is empty.

    Raises:
        ConfigError: A core is outside of this process's CPU affinity.
    """
    allowed = affinity()
    if foreign := sorted(set(cores) - set(allowed)):
        raise ConfigError(f"pin_cores: cores {foreign} are outside this process's CPU affinity ({allowed}).")
    return list(cores) or allowed


def limit(threads: int) -> None:
    """Limit this process to `threads` torch threads and one BLAS thread, also in libraries that are already loaded."""
    threadpoolctl.threadpool_limits(1, user_api="blas")
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def blas_threads() -> int:
    """Threads of the largest BLAS pool that is loaded here."""
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return max(pools, default=1)

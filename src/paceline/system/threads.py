"""The core budget: how many cores this process may use, and one compute thread for everyone.

Four workers that each start as many BLAS threads as there are cores are the classic reason why parallel
training is slower than sequential. Workers inherit variables that say so before numpy and torch are loaded
(`forkserver`); `limit` covers libraries that are loaded already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import threadpoolctl
import torch

from paceline.errors import ConfigError
from paceline.system.limits import affinity, cpu_quota


def core_budget() -> int:
    """Cores this process may keep busy: its affinity (`taskset` shows here), cut to the control group's quota."""
    cores, quota = len(affinity()), cpu_quota()
    return max(1, min(cores, math.floor(quota))) if quota else cores


def pinned_cores(cores: Sequence[int]) -> list[int]:
    """The cores to pin workers to; empty means all that are allowed.

    Raises:
        ConfigError: One of them may not be used here.
    """
    allowed = affinity()
    if foreign := sorted(set(cores) - set(allowed)):
        raise ConfigError(f"pin_cores: cores {foreign} are outside this process's CPU affinity ({allowed}).")
    return list(cores) or allowed


def limit(threads: int) -> None:
    """Give this process `threads` torch threads and one BLAS thread, whatever is loaded already."""
    threadpoolctl.threadpool_limits(1, user_api="blas")
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def blas_threads() -> int:
    """Threads of the largest BLAS pool that is loaded here."""
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return max(pools, default=1)

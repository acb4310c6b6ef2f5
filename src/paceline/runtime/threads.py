"""The core budget: how many cores this process may use, and one compute thread for everyone.

Four workers that each start as many BLAS threads as there are cores are the classic reason why parallel
training is slower than sequential. Workers inherit variables that say so before numpy and torch are loaded
(`forkserver`); `limit` covers libraries that are loaded already.
"""

from __future__ import annotations

import math
import multiprocessing
import threading
import warnings
from collections.abc import Sequence

import threadpoolctl
import torch

from paceline.errors import ConfigError
from paceline.measure.system import affinity, cpu_quota
from paceline.runtime.forkserver import StartMethod


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


def check_start_method(method: StartMethod) -> None:
    """Refuse what cannot work, and warn of what may not, before workers are started this way.

    Raises:
        ConfigError: The platform does not have it, or CUDA is in use and would not survive a fork.
    """
    known = multiprocessing.get_all_start_methods()
    if method not in known:
        raise ConfigError(f"start_method={method!r}: must be one that this platform has ({', '.join(known)}).")
    if method != "fork":
        return
    if torch.cuda.is_initialized():
        raise ConfigError("start_method='fork': CUDA is initialised here and does not survive a fork. Use forkserver.")
    if threading.active_count() > 1:
        warnings.warn(
            f"start_method='fork' with {threading.active_count()} threads alive: a lock that one of them holds "
            "stays locked in the workers. Prefer forkserver.",
            RuntimeWarning,
            stacklevel=3,
        )


def blas_threads() -> int:
    """Threads of the largest BLAS pool that is loaded here."""
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return max(pools, default=1)

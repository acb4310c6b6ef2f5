"""The core budget: how many cores this process may use, and one compute thread for everyone.

Four workers that each start as many BLAS threads as there are cores are the classic reason why parallel
training is slower than sequential. The variables must be set before numpy and torch are loaded, hence the
environment a worker inherits; `limit` covers libraries that are loaded already.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import threadpoolctl
import torch

from paceline.errors import ConfigError
from paceline.measure.system import affinity, cpu_quota

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
        raise ConfigError(f"pin_cores: cores {foreign} may not be used. Allowed here: {allowed}.")
    return list(cores) or allowed


@contextmanager
def one_thread_environment() -> Iterator[None]:
    """Processes started inside load their maths libraries with one thread each."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def limit(threads: int) -> None:
    """Give this process `threads` torch threads and one BLAS thread, whatever is loaded already."""
    threadpoolctl.threadpool_limits(1, user_api="blas")
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def blas_threads() -> int:
    """Threads of the largest BLAS pool that is loaded here."""
    pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return max(pools, default=1)

"""A Ray cluster of several nodes on this machine, started once; and a check that no run leaves anything on it."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")

GRACE_S = 10.0
NODES, CPUS = 3, 4
QUICKLY: dict[str, Any] = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
    "prestart_worker_first_driver": False,
}
"""A dead node is found in seconds rather than in half a minute, and idle processes are not started."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Three nodes with four CPUs each, of which there are fewer; this process is connected to the first."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": CPUS, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**small, "_system_config": QUICKLY})
    for _ in range(NODES - 1):
        made.add_node(**small)
    ray.init(address=made.address, logging_level="ERROR", log_to_driver=False, namespace="paceline")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves workers or nodes of ours behind; Ray's own processes outlive it."""
    before = set(ours())
    yield
    deadline = time.perf_counter() + GRACE_S
    while left := set(ours()) - before:
        multiprocessing.active_children()
        if time.perf_counter() > deadline:
            pytest.fail(f"left behind after {GRACE_S} s: {[_title(pid) for pid in left]}")
        time.sleep(0.05)


def ours() -> Iterator[int]:
    """Workers and node actors of this session, including those whose parent has died."""
    for pid in psutil.pids():
        if _title(pid).startswith(("paceline: worker", "paceline: node")) and of_this_session(pid):
            yield pid


def of_this_session(pid: int) -> bool:
    """Whether a process has inherited what tests/conftest.py has put into the environment."""
    token = f"PACELINE_TEST_RUN={os.environ['PACELINE_TEST_RUN']}".encode()
    try:
        return token in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _title(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline()).strip()
    except psutil.Error:
        return ""

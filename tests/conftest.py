"""Fixtures and settings for all tests: one thread per pool, a check for leaked processes and shared memory, and locks.

Under pytest-xdist each process has its own fork server, its own token and its own children.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

# A shell ignores these signals in background jobs, and the processes that tests start and interrupt would inherit that.
for _number in (signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# Set before any test imports numpy or torch: several thread pools on the same cores slow each other down.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

PRELOAD = ("paceline.train.algorithms.ppo", "gymnasium.envs.classic_control")
_set_preload = multiprocessing.set_forkserver_preload


def _preload_all(modules: Sequence[str]) -> None:
    """Always preload all modules into the fork server, which the whole session shares.

    The first test that starts it decides what it preloads. If that were too little, every worker of every later test
    would import torch itself.
    """
    _set_preload(list(dict.fromkeys([*PRELOAD, *modules])))


_preload_all(())
multiprocessing.set_forkserver_preload = _preload_all  # type: ignore[assignment]

settings.register_profile("paceline", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("paceline")

TOKEN = f"PACELINE_TEST_RUN={uuid.uuid4().hex}"
"""An environment variable that all processes started by this session inherit, to recognise orphans."""
os.environ.__setitem__(*TOKEN.split("="))
os.environ["SPT_NOENV"] = "1"  # keeps setproctitle from overwriting the environment that holds the token

GRACE_S = 3.0
SHM = Path("/dev/shm")
LASTING = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
"""Servers that multiprocessing starts once and keeps until this process ends."""

HERE = Path(__file__)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run a test marked `alone` while the other pytest-xdist processes wait. Waiting does not count as test time."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with _turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def _turn(*, alone: bool) -> Iterator[None]:
    """Hold a file lock, shared or exclusive. Locks end with their process, and the locked files exist anyway."""
    with HERE.open() as door, HERE.with_name("jobs.py").open() as room:
        fcntl.flock(door, fcntl.LOCK_EX)  # a process that waits for the others to finish keeps new ones from starting
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)  # closing is not enough: a forked child may hold the file open


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a process or a /dev/shm entry behind, and kill the processes."""
    pids = set(psutil.pids())
    shm = _shm_entries()
    yield
    deadline = time.perf_counter() + GRACE_S
    while True:
        multiprocessing.active_children()  # reaps ended children
        processes = _our_processes(set(psutil.pids()) - pids)
        entries = _ownerless(_shm_entries() - shm)
        if not processes and not entries:
            return
        if time.perf_counter() > deadline:
            break
        time.sleep(0.05)
    described = [_describe(process) for process in processes]
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    pytest.fail(f"left behind after {GRACE_S} s: processes {described}, /dev/shm entries {sorted(entries)}")


def _our_processes(pids: set[int]) -> list[psutil.Process]:
    """The `pids` that descend from this process (orphans included), without zombies and the `LASTING` servers."""
    found = []
    me = os.getpid()
    for pid in pids:
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            ancestors = [parent.pid for parent in process.parents()]
            ours = me in ancestors or _has_token(pid)
            # A worker forked by the fork server has the command line of the server, but another parent.
            lasting = process.ppid() == me and any(name in " ".join(process.cmdline()) for name in LASTING)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if ours and not lasting:
            found.append(process)
    return found


def _has_token(pid: int) -> bool:
    try:
        return TOKEN.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} ({' '.join(process.cmdline())[:120]})"
    except psutil.Error:
        return str(process.pid)


def _shm_entries() -> set[str]:
    try:
        return set(os.listdir(SHM))
    except OSError:
        return set()


def _ownerless(entries: set[str]) -> set[str]:
    """The `entries` of /dev/shm that no process of another program has open."""
    if not entries:
        return entries
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            used = {Path(m.path).name for m in process.memory_maps() if m.path.startswith(f"{SHM}/")}
        except (psutil.Error, OSError):
            continue
        entries = entries - used
    return entries

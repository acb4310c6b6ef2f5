"""Starts child processes: the fork server, one BLAS thread per child, and no second run of the user's script.

This module does not import torch, so that the command line can start the fork server first, and both load torch at the
same time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from typing import Literal

StartMethod = Literal["forkserver", "spawn", "fork"]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WORKER_MODULE = "paceline.runtime.worker"
GUARD_MODULE, EXIT_MODULE = "paceline.runtime.server_guard", "paceline.runtime.server_exit"

_main_lock = threading.Lock()


def default_start_method() -> StartMethod:
    """Return forkserver on Linux and spawn elsewhere."""
    return "forkserver" if sys.platform == "linux" else "spawn"


def start_fork_server(preload: Sequence[str]) -> None:
    """Start the fork server unless it runs; it imports the modules once for all workers. Does not wait for it.

    Args:
        preload: Modules to import besides the worker's own.
    """
    resource_tracker.ensure_running()  # started later, it would unblock Ctrl-C
    with child_environment():
        multiprocessing.set_forkserver_preload([GUARD_MODULE, WORKER_MODULE, *preload, EXIT_MODULE])
        forkserver.ensure_running()


@contextmanager
def child_environment() -> Iterator[None]:
    """Context in which to start children: one thread per maths library, no import of the user's script, Ctrl-C blocked.

    Ctrl-C reaches the whole process group. It stays blocked in a child until the child calls `ignore_interrupts`: while
    the child loads its first modules, an interrupt would end it with a traceback.
    """
    with environment(dict.fromkeys(THREAD_VARIABLES, "1")), _without_main(), _interrupts_blocked():
        yield


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Context in which these environment variables are set, also for processes that are started in it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in this child process, also one that came while it was blocked; the driver handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Replace `__main__` by an empty module while children start, so that they do not import the user's script.

    Children do not need the script, since cloudpickle sends what is defined there by value. So a script needs no
    `if __name__ == "__main__"` guard, and its side effects happen once.
    """
    with _main_lock:
        real = sys.modules["__main__"]
        stand_in = types.ModuleType("__main__")
        stand_in.__spec__ = None
        sys.modules["__main__"] = stand_in
        try:
            yield
        finally:
            sys.modules["__main__"] = real

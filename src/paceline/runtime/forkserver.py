"""Starting processes: the fork server, one maths thread per child, and no second run of the user's script.

Free of torch, so that the command line can start the fork server first and load torch while it does the same.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from typing import Literal

StartMethod = Literal["forkserver", "spawn", "fork"]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
WORKER_MODULE = "paceline.runtime.worker"
GUARD_MODULE, EXIT_MODULE = "paceline.runtime.server_guard", "paceline.runtime.server_exit"

_main_lock = threading.Lock()


def default_start_method() -> StartMethod:
    """Forkserver where it exists on Linux; spawn elsewhere."""
    return "forkserver" if sys.platform == "linux" else "spawn"


def start_fork_server(preload: Sequence[str]) -> None:
    """Start the server unless it runs, and have it import modules once for all workers. Does not wait for it.

    Args:
        preload: Modules beyond the worker's own.
    """
    resource_tracker.ensure_running()  # it would unblock Ctrl-C in between
    with child_environment():
        multiprocessing.set_forkserver_preload([GUARD_MODULE, WORKER_MODULE, *preload, EXIT_MODULE])
        forkserver.ensure_running()


@contextmanager
def child_environment() -> Iterator[None]:
    """Children started inside load their maths libraries with one thread and do not import the user's script.

    Ctrl-C, which reaches the whole process group, waits until they can `ignore_interrupts`: while they load their first
    modules it would end them with a traceback.
    """
    with _one_thread_each(), _importless_main(), _interrupts_blocked():
        yield


def ignore_interrupts() -> None:
    """In a child: leave Ctrl-C to the driver, whether it has come already or not."""
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
def _one_thread_each() -> Iterator[None]:
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


@contextmanager
def _importless_main() -> Iterator[None]:
    """Hide `__main__` from the code that would have a child import it.

    Children do not need it, since cloudpickle carries what is defined there by value; and without it a script
    needs no `if __name__ == "__main__"` guard and runs its own side effects once.
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

"""Ends the processes that a worker's envs have started (simulators, for example) after the worker itself has ended.

    a process in the worker's process group        killed with the group
    a process in a session of its own (setsid)     found by the mark that it inherits in its environment
    any process below the fork server              killed when the driver ends (`runtime.server_exit`)

The third line needs `adopt_orphans`: without it, a process whose worker has ended becomes a child of init.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import uuid
from collections.abc import Collection
from contextlib import suppress
from time import monotonic, sleep

import psutil

MARK = "PACELINE_WORKER_MARK"
"""Environment variable of a worker that its envs' processes inherit."""
END_S = 2.0
"""No process of a run may live longer than this after its driver."""
_PR_SET_CHILD_SUBREAPER = 36


def new_mark() -> str:
    """Return a mark that no other process has."""
    return uuid.uuid4().hex


def lead_group(mark: str) -> None:
    """Make this worker the leader of a process group of its own, and mark the processes that it will start.

    Ctrl-C in a terminal then does not reach the envs' processes, which the driver still needs to finish the rollout.
    """
    os.environ[MARK] = mark
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)


def kill_group(leader: int) -> None:
    """Kill the processes in the group of a worker that has ended."""
    if hasattr(os, "killpg") and leader > 0:  # 0 is the caller's own group
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def kill_marked(marks: Collection[str]) -> None:
    """Kill the processes that inherited one of these marks."""
    for process in psutil.process_iter() if marks else ():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) in marks:
                process.kill()


def adopt_orphans() -> None:
    """Make this process the parent of all descendants whose own parents end (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_children() -> None:
    """Kill all descendants of this process, which must have called `adopt_orphans`, within `END_S`."""
    deadline = monotonic() + END_S
    while (children := psutil.Process().children(recursive=True)) and monotonic() < deadline:
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        sleep(0.001)

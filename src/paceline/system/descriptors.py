"""File descriptors: passes them to new processes, closes them in forked ones, and raises the soft limit."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from multiprocessing import context, forkserver, reduction
from multiprocessing.connection import Connection
from typing import Any

from paceline.errors import ConfigError

if sys.platform != "win32":
    import resource

PER_WORKER = 6
"""Descriptors per worker: two pipes, its sentinel, its stack file, and two more while it starts."""
RESERVE = 48
"""Descriptors for CSV tables, logs, a checkpoint being written, and files that an env in this process opens."""

_drivers_ends: weakref.WeakSet[Connection] = weakref.WeakSet()


def close_in_children(*ends: Connection) -> None:
    """Close these ends of pipes in every process that is forked from this one, also by an env.

    Workers and the fork server end when the driver's ends of their pipes close, and a forked copy would keep them open.
    """
    _drivers_ends.update(ends)


def _close_copies() -> None:
    for end in _drivers_ends:
        end.close()
    server: Any = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        # The child starts a fork server of its own if it needs one.
        server._forkserver_alive_fd = server._forkserver_address = server._forkserver_pid = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_copies)


class OwnedDescriptor:
    """A file descriptor of this object alone. Passed as a process argument, it is duplicated for the new process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __reduce__(self) -> tuple[Callable[..., OwnedDescriptor], tuple[Any, ...]]:
        # Forkserver and spawn can pass descriptors only while the process object is pickled.
        context.assert_spawning(self)
        return _attach, (type(self), reduction.DupFd(self._fd))


def _attach(kind: type[OwnedDescriptor], handle: Any) -> OwnedDescriptor:
    return kind(handle.detach())


def make_room(workers: int) -> None:
    """Raise this process's soft limit of file descriptors if that many workers need it.

    Raises:
        ConfigError: The hard limit is too low.
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
            f"num_workers={workers}: needs about {needed} file descriptors (hard limit {hard}). "
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

"""Lets the kernel kill this process, or its whole process group, when its driver ends."""

from __future__ import annotations

import os
import select
import signal
import sys

if sys.platform != "win32":
    import fcntl


def die_with_parent(fd: int, *, whole_group: bool = False) -> None:
    """Let the kernel kill this process when the other end of a pipe closes, whatever the process is doing.

    PR_SET_PDEATHSIG does not work here: with forkserver the parent of a worker is the fork server.

    Args:
        fd: Read end of a pipe to which no process ever writes.
        whole_group: Whether the kernel also kills the other processes of this one's group, such as those of its envs.
    """
    if sys.platform == "linux":
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp() if whole_group else os.getpid())
        fcntl.fcntl(fd, 10, signal.SIGKILL)  # F_SETSIG, which the module does not name
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        # The kernel sends the signal when the other end closes; check whether it closed before this was set up.
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if poll.poll(0):
            os.kill(-os.getpgrp() if whole_group else os.getpid(), signal.SIGKILL)


def outlive_parent(fd: int) -> None:
    """Undo `die_with_parent`."""
    if sys.platform == "linux":
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_ASYNC)

"""Have the kernel end this process when another is gone."""

from __future__ import annotations

import os
import select
import signal
import sys

if sys.platform != "win32":
    import fcntl


def die_with(fd: int) -> None:
    """Have the kernel kill this process when the other end of a pipe closes, whatever it is doing then.

    PR_SET_PDEATHSIG would not do: under forkserver a worker's parent is the fork server.

    Args:
        fd: The reading end, to which nobody ever writes.
    """
    if sys.platform == "linux":
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, 10, signal.SIGKILL)  # F_SETSIG, which the module does not name
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        # The signal comes when the end closes; it may have closed before anybody asked.
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if poll.poll(0):
            os.kill(os.getpid(), signal.SIGKILL)

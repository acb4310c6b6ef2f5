"""Lets the kernel kill the fork server when its driver ends; the server imports this before any slow module.

Without it, the server notices the end of its driver only between two requests, so not during the seconds in which it
imports torch. It also would not ignore Ctrl-C before that import is done.
"""

from __future__ import annotations

import re
import sys

from paceline.runtime.forkserver import ignore_interrupts
from paceline.system.die_with_parent import die_with_parent


def driver_pipe() -> int | None:
    """Descriptor of the pipe that closes when the driver ends: the second argument on the server's command line."""
    command = re.search(r"forkserver import main; main\((\d+), (\d+)", " ".join(sys.orig_argv))
    return None if command is None else int(command[2])


def guard() -> None:
    """Watch the driver's pipe."""
    if (fd := driver_pipe()) is not None:
        ignore_interrupts()
        die_with_parent(fd)


guard()

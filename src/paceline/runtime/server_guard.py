"""Imported by the fork server before any slow import: the kernel kills the server when its driver is gone.

By itself it checks for its driver only between two requests, so not while it imports torch, which takes seconds.
It also does not ignore Ctrl-C before that import is done.
"""

from __future__ import annotations

import re
import sys

from paceline.runtime.forkserver import ignore_interrupts
from paceline.system.die_with_parent import die_with_parent


def guard() -> None:
    """Find the driver's pipe: the second argument on the server's own command line."""
    command = re.search(r"forkserver import main; main\((\d+), (\d+)", " ".join(sys.orig_argv))
    if command is not None:
        ignore_interrupts()
        die_with_parent(int(command[2]))


guard()

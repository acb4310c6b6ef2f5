"""Imported by the fork server before anything that takes long: the kernel ends it when its driver is gone.

By itself it looks for its driver only between two requests, and so not while it imports torch, which takes seconds.
Nor does it ignore Ctrl-C before that is done.
"""

from __future__ import annotations

import re
import sys

from paceline.runtime.die_with import die_with
from paceline.runtime.forkserver import ignore_interrupts


def guard() -> None:
    """Find the pipe that tells of the driver: the second argument on the server's own command line."""
    command = re.search(r"forkserver import main; main\((\d+), (\d+)", " ".join(sys.orig_argv))
    if command is not None:
        ignore_interrupts()
        die_with(int(command[2]))


guard()

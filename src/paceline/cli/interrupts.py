"""Ctrl-C on the command line: a command that is interrupted exits with code 130, whenever the interrupt comes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import FrameType

EXIT_CODE = 130
RAISED = 2
"""Interrupts that raise KeyboardInterrupt: the first closes everything, the second keeps closing from taking long."""


class Interrupts:
    """The handler of SIGINT while a command runs. A run has a handler of its own while it trains.

    A handler that raises at any moment could raise after the last `except` of the command. Python would then print a
    traceback and end the process by the signal. So interrupts raise only while `main` catches them; the others end
    the process.
    """

    def __init__(self) -> None:
        self.returned = False
        """Set when the command has returned: from then on an interrupt ends the process at once."""
        self.exit_code = EXIT_CODE
        """Exit code if an interrupt ends the process."""
        self.raised = 0
        """Number of interrupts that have raised KeyboardInterrupt; the first has also told the user."""

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Say that the command is interrupted and raise KeyboardInterrupt, or end the process."""
        if self.returned or self.raised >= RAISED:
            os._exit(self.exit_code)
        self.raised += 1
        if self.raised == 1:
            _say_interrupted()
        raise KeyboardInterrupt


def _say_interrupted() -> None:
    """Tell the user. Written directly, because a signal may interrupt a `print`."""
    with suppress(OSError, ValueError, AttributeError):  # stderr may be missing, or closed
        file = sys.stderr.fileno()
        # A terminal shows ^C at the cursor: continue on the next line.
        os.write(file, b"\ninterrupted\n" if os.isatty(file) else b"interrupted\n")


def forget_interrupts() -> None:
    """Let the process exit with its own exit code although it was interrupted.

    If a KeyboardInterrupt leaves code that `exec` runs from a string, as many modules do while they are imported,
    CPython takes it for unhandled and ends the process by SIGINT after its last line. The next `exec` resets that.
    """
    exec("")

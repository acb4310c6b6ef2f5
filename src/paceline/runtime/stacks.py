"""Stack traces of a worker: the worker writes them when it crashes, or when the driver asks for them.

driver --SIGUSR2--> worker: a handler in C writes the stacks of all threads, even while the GIL is held
       <---file---- the driver reads them from an unnamed file, which outlives the worker
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress

from paceline.system.descriptors import OwnedDescriptor

AVAILABLE = sys.platform != "win32"
ANSWER_TIMEOUT_S = 2.0
"""How long to wait for a stack. It arrives within a millisecond, or never if the worker process is stopped."""
MOST_BYTES = 20_000
"""Bytes read from the end of the file, so that repeated crashes cannot fill the log."""


class StackFile(OwnedDescriptor):
    """An unnamed file, written by one worker and read by the driver. Can be passed to a new process."""

    @classmethod
    def create(cls) -> StackFile | None:
        """Create one; None on platforms without it."""
        if not AVAILABLE:
            return None
        if sys.platform == "linux":
            return cls(os.memfd_create("paceline-stacks", os.MFD_CLOEXEC))
        fd, path = tempfile.mkstemp(prefix="paceline-")
        os.unlink(path)
        return cls(fd)

    def listen(self) -> None:
        """In the worker: write the stacks to this file on a crash and on SIGUSR2."""
        faulthandler.enable(self._fd)
        if sys.platform != "win32":
            faulthandler.register(signal.SIGUSR2, self._fd, all_threads=True)

    def ask(self, pid: int) -> str:
        """In the driver: return the current stacks of that process; empty if it does not respond."""
        if sys.platform == "win32":
            return ""
        before = self._size()
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGUSR2)
        deadline = time.perf_counter() + ANSWER_TIMEOUT_S
        size = before
        while time.perf_counter() < deadline:
            time.sleep(0.02)
            # The handler writes in several pieces: the stack is complete when the file has stopped growing.
            if size > before and self._size() == size:
                break
            size = self._size()
        return self.read(before)

    def read(self, start: int = 0) -> str:
        """Return the content from byte `start` on, limited in size."""
        if self._fd < 0:
            return ""
        size = self._size()
        start = max(start, size - MOST_BYTES)
        return os.pread(self._fd, size - start, start).decode(errors="replace").strip()

    def _size(self) -> int:
        return os.fstat(self._fd).st_size

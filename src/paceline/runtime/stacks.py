"""Where a worker's stacks go when it crashes, or when the driver asks what it is at.

driver --SIGUSR2--> worker: a handler in C writes the stacks of all threads, even while the GIL is held
       <---file---- which has no name, is read by the driver, and so outlives the worker
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import context, reduction
from typing import Any

AVAILABLE = sys.platform != "win32"
PATIENCE_S = 2.0
"""How long a stack may take to arrive. It takes a millisecond, or it does not come: the worker is stopped."""
MOST_BYTES = 20_000
"""Of the end of the file; a loop that crashes again and again must not fill the log."""


class StackFile:
    """A file without a name, written by one worker and read by the driver. Travels with a process that is started."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def create(cls) -> StackFile | None:
        """A new one; None where there is no such thing."""
        if not AVAILABLE:
            return None
        if sys.platform == "linux":
            return cls(os.memfd_create("paceline-stacks", os.MFD_CLOEXEC))
        fd, path = tempfile.mkstemp(prefix="paceline-")
        os.unlink(path)
        return cls(fd)

    def listen(self) -> None:
        """In the worker: have crashes, and whoever asks, find the stacks here."""
        faulthandler.enable(self._fd)
        if sys.platform != "win32":
            faulthandler.register(signal.SIGUSR2, self._fd, all_threads=True)

    def ask(self, pid: int) -> str:
        """In the driver: the stacks of that process as they are now; empty if it does not answer."""
        if sys.platform == "win32":
            return ""
        before = self._size()
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGUSR2)
        deadline = time.perf_counter() + PATIENCE_S
        size = before
        while time.perf_counter() < deadline:
            time.sleep(0.02)
            # Written piece by piece: it is all there when it has stopped growing.
            if size > before and self._size() == size:
                break
            size = self._size()
        return self.read(before)

    def read(self, start: int = 0) -> str:
        """What is in it from byte `start` on, if that is not too much."""
        if self._fd < 0:
            return ""
        size = self._size()
        start = max(start, size - MOST_BYTES)
        return os.pread(self._fd, size - start, start).decode(errors="replace").strip()

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _size(self) -> int:
        return os.fstat(self._fd).st_size

    def __reduce__(self) -> tuple[Callable[[Any], StackFile], tuple[Any]]:
        context.assert_spawning(self)
        return _attach, (reduction.DupFd(self._fd),)


def _attach(handle: Any) -> StackFile:
    return StackFile(handle.detach())

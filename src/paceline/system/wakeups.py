"""Wake-up signals between processes (an eventfd on Linux, a pipe elsewhere), and a wait on several descriptors.

A signal says that something happened, not what or how often: that information is in shared memory.
"""

from __future__ import annotations

import multiprocessing
import os
import select
from collections.abc import Callable, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from paceline.system.descriptors import OwnedDescriptor


class EventSignal(OwnedDescriptor):
    """One eventfd. See `Signal`."""

    def __init__(self, fd: int | None = None) -> None:
        super().__init__(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if fd is None else fd)

    @property
    def waitable(self) -> int:
        """File descriptor for a `DescriptorWatch`: readable while the signal is set."""
        return self._fd

    def set(self) -> None:
        """Wake the waiting process. Never blocks."""
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Reset the signal. Never blocks."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return  # `suppress` is slower, and this runs in every step


class PipeSignal:
    """A pipe with one byte for each `set` since the last `clear`. See `Signal`."""

    def __init__(self, ends: tuple[Connection, Connection] | None = None) -> None:
        self._read, self._write = ends or multiprocessing.Pipe(duplex=False)

    @property
    def waitable(self) -> Connection:
        """Readable while it is set."""
        return self._read

    def set(self) -> None:
        """Wake the waiting process."""
        self._write.send_bytes(b"!")

    def clear(self) -> None:
        """Reset the signal."""
        while self._read.poll():
            self._read.recv_bytes()

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        self._read.close()
        self._write.close()

    def __reduce__(self) -> tuple[Callable[..., PipeSignal], tuple[Any, ...]]:
        return PipeSignal, ((self._read, self._write),)


Signal: TypeAlias = EventSignal | PipeSignal
"""A flag between processes: each may set it, wait for it and clear it. Can be passed as a process argument."""


def new_signal() -> Signal:
    """Create the fastest kind of signal that this platform has."""
    return EventSignal() if hasattr(os, "eventfd") else PipeSignal()


class DescriptorWatch:
    """A wait on several descriptors, set up once because it runs in every step.

    Args:
        things: File descriptors or connections.
    """

    def __init__(self, things: Sequence[Any]) -> None:
        self._things = list(things)
        self._poll = select.poll() if os.name == "posix" else None
        if self._poll is not None:
            for thing in things:
                self._poll.register(thing, select.POLLIN)

    def wait(self, timeout_s: float) -> set[int]:
        """Return the descriptors that are readable now, or become so before the timeout."""
        if self._poll is not None:
            return {fd for fd, _ in self._poll.poll(1000.0 * timeout_s)}
        ready = connection.wait(self._things, timeout_s)
        return {descriptor(thing) for thing in ready}


def descriptor(thing: Any) -> int:
    """Return the file descriptor."""
    return thing if isinstance(thing, int) else int(thing.fileno())

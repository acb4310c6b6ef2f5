"""What wakes another process: an eventfd on Linux, a pipe elsewhere; and a wait on several things at once.

A signal says that something happened, not what nor how often: that stands in shared memory.
"""

from __future__ import annotations

import multiprocessing
import os
import select
from collections.abc import Callable, Sequence
from multiprocessing import connection, context, reduction
from multiprocessing.connection import Connection
from typing import Any, Protocol


class Signal(Protocol):
    """Both ends in one: whoever holds it may set it, wait for it and clear it. Travels as a process argument."""

    @property
    def waitable(self) -> Any:
        """For a `Watch`: readable while it is set."""

    def set(self) -> None:
        """Wake whoever waits. Never blocks."""

    def clear(self) -> None:
        """As if it had not been set. Never blocks."""

    def close(self) -> None:
        """Let go of it. Idempotent."""


class EventSignal:
    """One eventfd."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if fd is None else fd

    @property
    def waitable(self) -> int:
        """Readable while it is set."""
        return self._fd

    def set(self) -> None:
        """Wake whoever waits."""
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """As if it had not been set."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return  # `suppress` takes its time, and this is on the path of every step

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __reduce__(self) -> tuple[Callable[..., EventSignal], tuple[Any, ...]]:
        context.assert_spawning(self)
        return _event_signal, (reduction.DupFd(self._fd),)


class PipeSignal:
    """A pipe that holds a byte for every time it was set since it was cleared last."""

    def __init__(self, ends: tuple[Connection, Connection] | None = None) -> None:
        self._read, self._write = ends or multiprocessing.Pipe(duplex=False)

    @property
    def waitable(self) -> Connection:
        """Readable while it is set."""
        return self._read

    def set(self) -> None:
        """Wake whoever waits."""
        self._write.send_bytes(b"!")

    def clear(self) -> None:
        """As if it had not been set."""
        while self._read.poll():
            self._read.recv_bytes()

    def close(self) -> None:
        """Let go of it. Idempotent."""
        self._read.close()
        self._write.close()

    def __reduce__(self) -> tuple[Callable[..., PipeSignal], tuple[Any, ...]]:
        return PipeSignal, ((self._read, self._write),)


def new_signal() -> Signal:
    """The fastest kind that there is here."""
    return EventSignal() if hasattr(os, "eventfd") else PipeSignal()


class Watch:
    """A wait on several things at once, set up once: it is on the path of every step.

    Args:
        things: Descriptors of the system, or connections.
    """

    def __init__(self, things: Sequence[Any]) -> None:
        self._things = list(things)
        self._poll = select.poll() if os.name == "posix" else None
        if self._poll is not None:
            for thing in things:
                self._poll.register(thing, select.POLLIN)

    def wait(self, timeout_s: float) -> set[int]:
        """The descriptors that are readable now or by then."""
        if self._poll is not None:
            return {fd for fd, _ in self._poll.poll(1000.0 * timeout_s)}
        ready = connection.wait(self._things, timeout_s)
        return {descriptor(thing) for thing in ready}


def descriptor(thing: Any) -> int:
    """What the system calls it."""
    return thing if isinstance(thing, int) else int(thing.fileno())


def _event_signal(fd: Any) -> EventSignal:
    return EventSignal(fd.detach())

"""Binds the threads of a team to one core, because passing the GIL to a thread on another core has to wake that core.

    calling thread   enter ......................... leave     bound in between
    team's threads   bound from the first `look` on

Threads and processes that envs start in their constructor or in `reset` are not bound (`roaming`). If an env starts a
process in `step`, the team is unbound for good. Does nothing on systems without CPU affinity.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

CAN_BIND = hasattr(os, "sched_setaffinity")
"""Whether this system can bind threads to cores."""

_free_cores: WeakKeyDictionary[threading.Thread, set[int]] = WeakKeyDictionary()
"""Bound threads, each with the cores that it may use when it is not bound."""

_entered: WeakKeyDictionary[threading.Thread, int] = WeakKeyDictionary()
"""Calling threads, each with the number of `OneCore` objects that it has entered and not left."""


class OneCore:
    """The core of one team of threads.

    Args:
        place: Index of the team. Teams get cores round-robin, and all processes of one parent start at the same core.
    """

    def __init__(self, place: int) -> None:
        self._free = sorted(os.sched_getaffinity(0)) if CAN_BIND else []
        self._place = os.getppid() + place
        self._bound, self._disabled = False, len(self._free) < 2
        self._caller: threading.Thread | None = None

    def look(self, threads: Iterable[threading.Thread]) -> None:
        """Bind the team's threads, or unbind them for good once a child process exists. Call it from time to time."""
        if self._disabled:
            return
        # A process that an env starts in `step` inherits the affinity of the thread, and would stay on its core.
        self._disabled = _has_children()
        if self._disabled or not self._bound:
            self._bound = True
            for thread in threads:
                if self._disabled:
                    _unbind(thread)
                else:
                    self._bind(thread, set(self._free))

    def enter(self) -> None:
        """Bind the calling thread to this core until `leave`; it may enter other objects in between."""
        if self._bound and not self._disabled and self._caller is None:
            caller = self._caller = threading.current_thread()
            _entered[caller] = _entered.get(caller, 0) + 1
            if _entered[caller] == 1:
                self._bind(caller, os.sched_getaffinity(0))

    def leave(self) -> None:
        """Unbind the thread that entered, when it has left every object that it entered."""
        caller, self._caller = self._caller, None
        if caller is not None:
            _entered[caller] -= 1
            if not _entered[caller]:
                _unbind(caller)

    def _bind(self, thread: threading.Thread, free: set[int]) -> None:
        with suppress(OSError):
            os.sched_setaffinity(thread.native_id or 0, [self._free[self._place % len(self._free)]])
            _free_cores[thread] = free


def roaming(do: Callable[..., Any], **how: Any) -> Any:
    """Return `do(**how)`, called with this thread unbound, so that threads and processes it starts are not bound."""
    free = _free_cores.get(threading.current_thread()) if _free_cores else None
    if free is None:
        return do(**how)
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, free)
    try:
        return do(**how)
    finally:
        os.sched_setaffinity(0, bound)


def _unbind(thread: threading.Thread) -> None:
    if (free := _free_cores.pop(thread, None)) is not None:
        with suppress(OSError):
            os.sched_setaffinity(thread.native_id or 0, free)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True

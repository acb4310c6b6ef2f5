"""Binds threads that take turns to one core: passing the GIL to a thread on another core means waking that core.

Only these threads are bound, and the caller while they work. Threads and processes that envs start in their constructor
or in `reset` are not bound. Does nothing on systems without CPU affinity.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

CAN_BIND = hasattr(os, "sched_setaffinity")
"""Whether threads can be kept on a core."""

_free_cores: WeakKeyDictionary[threading.Thread, set[int]] = WeakKeyDictionary()
"""Of each thread that is kept on a core: those that it could have."""

_entered: WeakKeyDictionary[threading.Thread, int] = WeakKeyDictionary()
"""How many have been entered by a thread that is no owner, and not left."""


class OneCore:
    """The core of some threads.

    Args:
        place: Which of this process's cores, counted round: processes with the same parent count from the same one.
    """

    def __init__(self, place: int) -> None:
        self._free = sorted(os.sched_getaffinity(0)) if CAN_BIND else []
        self._place = os.getppid() + place
        self._bound, self._given_up = False, len(self._free) < 2
        self._caller: threading.Thread | None = None

    def look(self, threads: Iterable[threading.Thread]) -> None:
        """Bind them, or let them go for good; to be called every now and then."""
        if self._given_up:
            return
        # What an env starts in a step would keep to the core of the thread that started it.
        self._given_up = _has_children()
        if self._given_up or not self._bound:
            self._bound = True
            for thread in threads:
                if self._given_up:
                    _let_go(thread)
                else:
                    self._keep(thread, set(self._free))

    def enter(self) -> None:
        """The calling thread is one of them, until it leaves; and of those of others that it enters meanwhile."""
        if self._bound and not self._given_up and self._caller is None:
            caller = self._caller = threading.current_thread()
            _entered[caller] = _entered.get(caller, 0) + 1
            if _entered[caller] == 1:
                self._keep(caller, os.sched_getaffinity(0))

    def leave(self) -> None:
        """The thread that entered goes where it could go before, when it has left all that it entered."""
        caller, self._caller = self._caller, None
        if caller is not None:
            _entered[caller] -= 1
            if not _entered[caller]:
                _let_go(caller)

    def _keep(self, thread: threading.Thread, free: set[int]) -> None:
        with suppress(OSError):
            os.sched_setaffinity(thread.native_id or 0, [self._free[self._place % len(self._free)]])
            _free_cores[thread] = free


def roaming(do: Callable[..., Any], **how: Any) -> Any:
    """What a call returns, made free of this thread's core: what it starts would keep to that core too."""
    free = _free_cores.get(threading.current_thread()) if _free_cores else None
    if free is None:
        return do(**how)
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, free)
    try:
        return do(**how)
    finally:
        os.sched_setaffinity(0, bound)


def _let_go(thread: threading.Thread) -> None:
    if (free := _free_cores.pop(thread, None)) is not None:
        with suppress(OSError):
            os.sched_setaffinity(thread.native_id or 0, free)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True

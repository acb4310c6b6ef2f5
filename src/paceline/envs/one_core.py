"""Keeps threads that take turns on one core: to hand the interpreter lock to another core means to wake that.

Only the threads: the process's main thread, and what envs start in their constructor or in `reset`, go where the system
puts them. Where the system does not know of a thread's cores, nothing happens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

CAN_BIND = hasattr(os, "sched_setaffinity")
"""Whether threads can be kept on a core."""


class OneCore:
    """The core of some threads.

    Args:
        place: Which of this process's cores, counted round: processes with the same parent count from the same one.
    """

    def __init__(self, place: int) -> None:
        self._free = sorted(os.sched_getaffinity(0)) if CAN_BIND else []
        self._place = os.getppid() + place
        self._bound, self._given_up = False, len(self._free) < 2

    def look(self, threads: Iterable[threading.Thread]) -> None:
        """Bind them, or let them go for good; to be called every now and then."""
        if self._given_up:
            return
        # What an env starts in a step would keep to the core of the thread that started it.
        self._given_up = _has_children()
        if self._given_up or not self._bound:
            self._bound = True
            cores = self._free if self._given_up else [self._free[self._place % len(self._free)]]
            for number in [thread.native_id for thread in threads if thread.native_id]:
                with suppress(OSError):
                    os.sched_setaffinity(number, cores)


def roaming(do: Callable[..., Any], **how: Any) -> Any:
    """What a call returns, made free of this thread's core: what it starts would keep to that core too."""
    main = threading.main_thread()
    if not CAN_BIND or threading.get_ident() == main.ident or not main.native_id:
        return do(**how)
    free, bound = os.sched_getaffinity(main.native_id), os.sched_getaffinity(0)
    if free == bound:
        return do(**how)
    os.sched_setaffinity(0, free)
    try:
        return do(**how)
    finally:
        os.sched_setaffinity(0, bound)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True

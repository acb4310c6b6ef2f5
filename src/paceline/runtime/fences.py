"""In which order another processor sees what this one stores, where counters in shared memory vouch for data."""

from __future__ import annotations

import os
import platform
import threading

IN_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i686")
"""Whether others see what this processor stores in the order of the program, and it loads in that order."""

_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)  # another thread of the parent may have held it


def fence() -> None:
    """Make what was stored visible before anything is loaded: taking a lock, any lock, has the processor do that.

    Whoever goes to sleep says so and looks once more; whoever has news writes them and looks for sleepers. Without a
    fence both could look too early, and the sleeper would sleep until its wait ends by itself.
    """
    _lock.acquire()
    _lock.release()
    if not IN_ORDER:
        # Taking it keeps what is later later, giving it back keeps what is earlier earlier: that takes a second.
        _lock.acquire()
        _lock.release()


def in_order() -> None:
    """Between data and the number that vouches for them, on both sides."""
    if not IN_ORDER:
        fence()

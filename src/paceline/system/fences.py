"""Memory fences: order stores and loads between processes, where a counter in shared memory announces data."""

from __future__ import annotations

import os
import platform
import threading

IN_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i686")
"""Whether this CPU makes stores visible in program order and loads in program order (x86)."""

_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)  # another thread of the parent may have held it


def fence() -> None:
    """Make earlier stores visible before later loads: acquiring any lock makes the CPU do that.

    A process that goes to sleep sets its flag and checks once more for news; a process with news writes it and checks
    for sleepers. Without a fence both could check too early, and the sleeper would sleep until its timeout.
    """
    _lock.acquire()
    _lock.release()
    if not IN_ORDER:
        # Acquire keeps later accesses after it, release keeps earlier ones before it: a full fence takes a second pair.
        _lock.acquire()
        _lock.release()


def in_order() -> None:
    """Order data and the counter that announces it; call it on both sides."""
    if not IN_ORDER:
        fence()

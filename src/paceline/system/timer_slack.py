"""Timer slack: makes sleeps end on time."""

from __future__ import annotations

import ctypes
import sys

_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1


def set_timer_slack() -> None:
    """Set the timer slack to 1 ns for this thread, and for threads and processes that it starts.

    By default Linux may end a sleep 50 microseconds late, to wake a core once for several timers. An env that waits
    for something loses that time in every step.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS), 0, 0, 0)

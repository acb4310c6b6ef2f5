"""Handles SIGINT (Ctrl-C) and SIGTERM during a block, and restores the earlier handlers after it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
"""Signals by which a user or a scheduler stops a program."""


@contextmanager
def handled_by(handle: Callable[[int], object]) -> Iterator[None]:
    """Call `handle` with the number of each stopping signal during the block. Does nothing outside the main thread.

    Args:
        handle: Runs between any two instructions of the block. It may set other handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def caught(number: int, _frame: FrameType | None) -> None:
        handle(number)

    before = {number: signal.getsignal(number) for number in STOPPING}
    for number in STOPPING:
        signal.signal(number, caught)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

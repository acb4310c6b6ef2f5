"""Watchdog for a job in this process: the process cannot be replaced, but an error can say where it hangs.

    main thread   envs.step, envs.step, ...          increments a counter with every row
    watchdog      sleeps, checks, sleeps             counter unchanged for too long: logs the stack, interrupts the step

A hang in Python is interrupted by a signal whose handler raises. A hang in C that holds the GIL cannot be interrupted,
because no Python code runs. A timer in C then prints the stack repeatedly, and the user must end the process. The timer
could end it, but it keeps running while a process is stopped (Ctrl-Z, a paused container) and would end that one too.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from paceline.errors import EnvHung
from paceline.memory.worker_status import BEAT, envs_of, spare
from paceline.runtime.worker_handle import STARTING, timeout_setting

USE_WORKERS = "On workers (--num-workers 1) a hung env is replaced."
STOPPED_S = 1.0
"""If the watchdog wakes up this much too late, the whole process was stopped, for example by Ctrl-Z."""

_log = logging.getLogger(__name__)
_active: set[Watchdog] = set()
"""Watchdogs that are not closed: they share the one timer of `faulthandler`."""


class Watchdog:
    """A thread that checks the counter from time to time.

    Args:
        line: Status line of the job.
        start_timeout_s: Timeout of making an env and its first reset.
        step_timeout_s: How long the counter may stay unchanged otherwise.
        who: Subject of the error if the status line names no env.
        remedy: Advice that ends the error.
    """

    def __init__(
        self,
        line: NDArray[np.int64],
        start_timeout_s: float,
        step_timeout_s: float,
        *,
        who: str = "the envs",
        remedy: str = USE_WORKERS,
    ) -> None:
        self._line, self._start_s, self._step_s = line, start_timeout_s, step_timeout_s
        self._who, self._remedy = who, remedy
        self._command, self._interruptible = "", 0
        self._beat, self._moved = int(line[BEAT]), perf_counter()
        self._error_text = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        _active.add(self)
        self._arm()  # not in the thread, which may never get to run
        self._thread.start()

    @contextmanager
    def over(self, command: str) -> Iterator[None]:
        """Watch the code inside the `with` block.

        Raises:
            EnvHung: The counter did not change for too long; the stack is in the log.
        """
        interruptible = hasattr(signal, "SIGUSR2") and threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGUSR2, self._interrupt) if interruptible else None
        self._moved, self._error_text = perf_counter(), ""
        self._command, self._interruptible = command, threading.get_ident() if interruptible else 0
        try:
            yield
        finally:
            self._command = ""
            if interruptible:
                signal.signal(signal.SIGUSR2, before)

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._ended.set()
        self._thread.join(1.0)

    def _watch(self) -> None:
        pause_s = min(1.0, self._start_s / 4, self._step_s / 4)
        checked = armed_s = perf_counter()
        while not self._ended.wait(pause_s):
            now = perf_counter()
            if now - checked > 2 * pause_s + STOPPED_S:
                self._moved = now
            checked = now
            if now - armed_s > max(self._start_s, self._step_s) / 2:
                self._arm()  # restarts the timer, so that it fires only if this thread does not get to run
                armed_s = now
            self._check(now)
        _active.discard(self)
        faulthandler.cancel_dump_traceback_later()
        for other in list(_active):
            other._arm()

    def _arm(self) -> None:
        longest_s = max(self._start_s, self._step_s)
        # stderr may be missing, or may have no file descriptor.
        with suppress(RuntimeError, OSError, ValueError, AttributeError):
            faulthandler.dump_traceback_later(1.5 * longest_s, repeat=True, file=sys.__stderr__ or sys.stderr)

    def _check(self, now: float) -> None:
        command, beat = self._command, int(self._line[BEAT])
        if beat != self._beat or not command:
            self._beat, self._moved = beat, now
            return
        starting = command in STARTING or not beat
        timeout_s = self._start_s if starting else self._step_s
        if now - self._moved <= timeout_s or self._error_text:
            return
        where = envs_of(self._line)
        silent_s = now - self._moved
        self._error_text = (
            f"{where or self._who}: no sign of life in `{command}` for {silent_s:.0f} s (limit {timeout_s:g} s). "
            f"An env may hang; if it is only slow, raise {timeout_setting(starting=starting)}. {self._remedy}"
        )
        frame = sys._current_frames().get(self._interruptible or threading.main_thread().ident or 0)
        _log.error("%s\nIts stack:\n%s", self._error_text, "".join(traceback.format_stack(frame)))
        if self._interruptible and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._interruptible, signal.SIGUSR2)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        # The job may have continued after the signal was sent: then there is nothing to interrupt.
        if self._error_text and self._command and int(self._line[BEAT]) == self._beat:
            raise EnvHung(self._error_text)


@contextmanager
def watched(
    command: str, timeouts_s: tuple[float, float], *, who: str, remedy: str = "", line: NDArray[np.int64] | None = None
) -> Iterator[None]:
    """Watch one `with` block with a watchdog of its own.

    Args:
        command: Name of the operation, for the error.
        timeouts_s: Timeouts of a start and of a step.
        who: Subject of the error.
        remedy: Advice that ends the error.
        line: Status line with the heartbeat; without one the start timeout covers the whole block.

    Raises:
        EnvHung: The heartbeat did not change for too long; the stack is in the log.
    """
    watchdog = Watchdog(spare() if line is None else line, *timeouts_s, who=who, remedy=remedy)
    try:
        with watchdog.over(command):
            yield
    finally:
        watchdog.close()

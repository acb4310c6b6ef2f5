"""Watchdog for a job in this process: it cannot be replaced, but the error can say where it hangs.

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
from paceline.runtime.worker_handle import STARTING

ON_WORKERS = "On workers (--num-workers 1) a hung env is replaced."
STOPPED_S = 1.0
"""If the watchdog itself wakes this much too late, the whole process was stopped, for example by Ctrl-Z."""

_log = logging.getLogger(__name__)
_on_duty: set[Watchdog] = set()
"""All watchdogs of the process share one timer."""


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
        remedy: str = ON_WORKERS,
    ) -> None:
        self._line, self._start_s, self._step_s = line, start_timeout_s, step_timeout_s
        self._who, self._remedy = who, remedy
        self._command, self._watched = "", 0
        self._beat, self._moved = int(line[BEAT]), perf_counter()
        self._verdict = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        _on_duty.add(self)
        self._arm()  # here: the thread may never get to run
        self._thread.start()

    @contextmanager
    def over(self, command: str) -> Iterator[None]:
        """DescriptorWatch the code inside the `with` block.

        Raises:
            EnvHung: The counter did not change for too long; the stack is in the log.
        """
        breakable = hasattr(signal, "SIGUSR2") and threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGUSR2, self._break_off) if breakable else None
        self._moved, self._verdict = perf_counter(), ""
        self._command, self._watched = command, threading.get_ident() if breakable else 0
        try:
            yield
        finally:
            self._command = ""
            if breakable:
                signal.signal(signal.SIGUSR2, before)

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._ended.set()
        self._thread.join(1.0)

    def _watch(self) -> None:
        pause_s = min(1.0, self._start_s / 4, self._step_s / 4)
        looked = armed_s = perf_counter()
        while not self._ended.wait(pause_s):
            now = perf_counter()
            if now - looked > 2 * pause_s + STOPPED_S:
                self._moved = now
            looked = now
            if now - armed_s > max(self._start_s, self._step_s) / 2:
                self._arm()  # puts it off for as long as this thread gets to run
                armed_s = now
            self._look(now)
        _on_duty.discard(self)
        faulthandler.cancel_dump_traceback_later()
        for other in list(_on_duty):
            other._arm()

    def _arm(self) -> None:
        longest_s = max(self._start_s, self._step_s)
        # There may be no stderr, or one that is no file of the system's.
        with suppress(RuntimeError, OSError, ValueError, AttributeError):
            faulthandler.dump_traceback_later(1.5 * longest_s, repeat=True, file=sys.__stderr__ or sys.stderr)

    def _look(self, now: float) -> None:
        command, beat = self._command, int(self._line[BEAT])
        if beat != self._beat or not command:
            self._beat, self._moved = beat, now
            return
        timeout_s = self._start_s if command in STARTING or not beat else self._step_s
        if now - self._moved <= timeout_s or self._verdict:
            return
        where = envs_of(self._line)
        silent_s = now - self._moved
        self._verdict = (
            f"{where or self._who}: no sign of life in `{command}` for {silent_s:.0f} s (limit {timeout_s:g} s). "
            f"An env may hang; if it is just slow, raise --env-timeout-s (or --start-timeout-s). {self._remedy}"
        )
        frame = sys._current_frames().get(self._watched or threading.main_thread().ident or 0)
        _log.error("%s\nIts stack:\n%s", self._verdict, "".join(traceback.format_stack(frame)))
        if self._watched and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(self._watched, signal.SIGUSR2)

    def _break_off(self, _number: int, _frame: FrameType | None) -> None:
        # The job may have continued since the signal was sent.
        if self._verdict and self._command and int(self._line[BEAT]) == self._beat:
            raise EnvHung(self._verdict)


@contextmanager
def watched(
    command: str, timeouts_s: tuple[float, float], *, who: str, remedy: str = "", line: NDArray[np.int64] | None = None
) -> Iterator[None]:
    """DescriptorWatch one `with` block.

    Args:
        command: Name of the operation, for the error.
        timeouts_s: Timeouts of a start and of a step.
        who: Subject of the error.
        remedy: Advice that ends the error.
        line: Status line with the heartbeat; without one the start timeout covers the whole block.

    Raises:
        EnvHung: The heartbeat did not change for too long; the stack is in the log.
    """
    dog = Watchdog(spare() if line is None else line, *timeouts_s, who=who, remedy=remedy)
    try:
        with dog.over(command):
            yield
    finally:
        dog.close()

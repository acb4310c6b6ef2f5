"""The watchdog interrupts a hang with an error that names it, and ignores a stop of the whole process."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

from paceline.errors import EnvHung
from paceline.memory.worker_status import BEAT
from paceline.runtime import watchdog


def test_a_hang_is_interrupted_with_an_error_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    before, threads = signal.getsignal(signal.SIGUSR2), threading.active_count()
    with (
        pytest.raises(
            EnvHung, match=r"^the evaluation: no sign of life in `doing` for .* \(limit 0.3 s\).* Try another\."
        ),
        watchdog.watched("doing", (0.3, 60.0), who="the evaluation", remedy="Try another."),
    ):
        time.sleep(3600.0)
    assert "time.sleep(3600.0)" in caplog.text, "the stack"
    assert signal.getsignal(signal.SIGUSR2) == before
    assert threading.active_count() == threads


def test_the_step_timeout_applies_after_the_first_heartbeat() -> None:
    line = np.zeros(8, np.int64)
    line[BEAT] = 1
    with pytest.raises(EnvHung, match=r"\(limit 0.3 s\)"), watchdog.watched("doing", (60.0, 0.3), who="", line=line):
        time.sleep(3600.0)


def test_a_process_that_was_stopped_is_not_taken_for_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-Z: time has passed, but neither the job nor the watchdog ran."""
    looks, jump_s, real = 0, 0.0, time.perf_counter

    def clock() -> float:
        nonlocal looks
        looks += threading.current_thread().name == "watchdog"
        return real() + jump_s

    monkeypatch.setattr(watchdog, "perf_counter", clock)
    with watchdog.watched("doing", (2.0, 2.0), who="the evaluation"):
        while looks < 2:
            time.sleep(0.01)
        jump_s, seen = 3600.0, looks
        while looks < seen + 2:
            time.sleep(0.01)

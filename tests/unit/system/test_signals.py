from __future__ import annotations

import signal
import threading

from paceline.system.signals import STOPPING, handled_by


def test_both_signals_are_handled_and_the_earlier_handlers_come_back() -> None:
    before, seen = [signal.getsignal(number) for number in STOPPING], list[int]()
    with handled_by(seen.append):
        for number in (*STOPPING, signal.SIGINT):
            signal.raise_signal(number)
    assert seen == [*STOPPING, signal.SIGINT]
    assert [signal.getsignal(number) for number in STOPPING] == before


def test_the_handler_may_set_other_handlers() -> None:
    before, seen = signal.getsignal(signal.SIGINT), list[int]()

    def once(number: int) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    with handled_by(once):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert seen == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_sets_no_handler() -> None:
    before, inside = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with handled_by(print):
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(10)
    assert inside == [before]

"""Stack traces of worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event

import pytest

from paceline.runtime import stacks
from paceline.runtime.stacks import StackFile

pytestmark = pytest.mark.skipif(not stacks.AVAILABLE, reason="this platform has no SIGUSR2")


def in_a_function_that_hangs(ready: Event) -> None:
    ready.set()
    time.sleep(60.0)


def in_a_function_that_crashes(_ready: Event) -> None:
    os.abort()


def run(file: StackFile, do: Callable[[Event], None], ready: Event) -> None:
    file.listen()
    do(ready)


@contextmanager
def process(do: Callable[[Event], None]) -> Iterator[tuple[StackFile, BaseProcess, Event]]:
    context, file = multiprocessing.get_context("fork"), StackFile.create()
    assert file is not None
    ready = context.Event()
    child = context.Process(target=run, args=(file, do, ready))
    child.start()
    try:
        yield file, child, ready
    finally:
        child.kill()
        child.join()
        file.close()
        file.close()  # idempotent


def test_the_driver_reads_where_a_process_hangs_as_often_as_it_asks() -> None:
    with process(in_a_function_that_hangs) as (file, child, ready):
        assert ready.wait(30.0)
        for _ in range(2):
            stack = file.ask(child.pid or 0)
            assert stack.count("in_a_function_that_hangs") == 1, "only what was written since"
        assert file.read().count("in_a_function_that_hangs") == 2


def test_a_crash_leaves_its_stack() -> None:
    with process(in_a_function_that_crashes) as (file, child, _):
        child.join(30.0)
        assert child.exitcode == -signal.SIGABRT
        stack = file.read()
    assert "Aborted" in stack
    assert "in_a_function_that_crashes" in stack


def test_a_stopped_or_dead_process_has_no_stack_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "ANSWER_TIMEOUT_S", 0.2)
    with process(in_a_function_that_hangs) as (file, child, ready):
        assert ready.wait(30.0)
        os.kill(child.pid or 0, signal.SIGSTOP)
        assert file.ask(child.pid or 0) == ""
        child.kill()
        child.join()
        assert file.ask(child.pid or 0) == ""


def test_only_the_end_of_a_long_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MOST_BYTES", 4)
    file = StackFile.create()
    assert file is not None
    os.write(file._fd, b"0123456789")
    assert file.read() == "6789"
    assert file.read(8) == "89"
    file.close()
    assert file.read() == "", "closed"


def test_a_platform_without_signals_has_no_stack_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "AVAILABLE", False)
    assert StackFile.create() is None

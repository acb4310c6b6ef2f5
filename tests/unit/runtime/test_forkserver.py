"""How child processes are started."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from contextlib import suppress
from typing import Any

import pytest

from paceline.runtime import forkserver
from paceline.runtime.forkserver import (
    THREAD_VARIABLES,
    child_environment,
    default_start_method,
    ignore_interrupts,
    start_fork_server,
)


def test_children_inherit_one_thread_and_the_driver_keeps_its_own_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = THREAD_VARIABLES
    monkeypatch.setenv(first, "7")
    for name in others:
        monkeypatch.delenv(name, raising=False)
    with suppress(KeyError), child_environment():
        assert [os.environ[name] for name in THREAD_VARIABLES] == ["1"] * 3
        raise KeyError
    assert os.environ[first] == "7"
    assert not any(name in os.environ for name in others), "also after a failure"


def test_children_do_not_import_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    script = types.ModuleType("__main__")
    script.__file__ = "/somewhere/script.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    with child_environment():
        inside = sys.modules["__main__"]
        assert inside is not script
        assert inside.__spec__ is None
        assert getattr(inside, "__file__", None) is None
    assert sys.modules["__main__"] is script


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this platform cannot block signals")
def test_interrupts_are_blocked_while_children_start() -> None:
    def blocked() -> bool:
        return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    assert not blocked()
    with child_environment():
        assert blocked()
    assert not blocked()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_ignores_also_an_interrupt_that_came_while_it_was_blocked() -> None:
    with child_environment():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGINT)
            ignore_interrupts()
            os.kill(os.getpid(), signal.SIGINT)
            blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
            os._exit(8 if blocked else 7)  # programs that an env starts would inherit the block
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_second_thread_waits_until_the_main_module_is_back() -> None:
    real, entered, finish = sys.modules["__main__"], threading.Event(), threading.Event()

    def start() -> None:
        with forkserver._without_main():
            entered.set()
            finish.wait(30.0)

    threads = [threading.Thread(target=start) for _ in range(2)]
    threads[0].start()
    assert entered.wait(30.0)
    entered.clear()
    threads[1].start()
    assert not entered.wait(0.2), "it would take the empty module for the script"
    finish.set()
    for thread in threads:
        thread.join()
    assert entered.is_set()
    assert sys.modules["__main__"] is real


def test_the_server_is_guarded_first_and_loads_the_modules_of_workers_before_its_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(multiprocessing, "set_forkserver_preload", calls.append)
    monkeypatch.setattr(
        "multiprocessing.forkserver.ensure_running", lambda: calls.append(os.environ["OMP_NUM_THREADS"])
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    start_fork_server(["some.module"])
    modules = [forkserver.GUARD_MODULE, forkserver.WORKER_MODULE, "some.module", forkserver.EXIT_MODULE]
    assert calls == [modules, "1"]


@pytest.mark.parametrize(("platform", "method"), [("linux", "forkserver"), ("darwin", "spawn"), ("win32", "spawn")])
def test_the_default_method_by_platform(platform: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert default_start_method() == method

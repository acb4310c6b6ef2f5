"""The kernel kills the fork server when its driver ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
reader, writer = os.pipe()
sys.orig_argv = ["python", "-c", {command!r}.replace("READER", str(reader))]
import paceline.runtime.server_guard
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, flush=True)
os.close(writer)
time.sleep({seconds})
"""
SERVER = "from multiprocessing.forkserver import main; main(99, READER, ['a.module'], **{})"


def run(command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(command=command, seconds=seconds)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)


@pytest.mark.skipif(sys.platform != "linux", reason="only the kernel of Linux does this")
def test_a_fork_server_ignores_interrupts_and_dies_with_the_pipe_of_its_driver() -> None:
    ended = run(SERVER, 60.0)
    assert ended.stdout == "True\n", ended.stderr
    assert ended.returncode == -signal.SIGKILL


def test_another_process_that_imports_the_guard_is_left_alone() -> None:
    ended = run("print('not a fork server')", 0.1)
    assert ended.stdout == "False\n", ended.stderr
    assert ended.returncode == 0

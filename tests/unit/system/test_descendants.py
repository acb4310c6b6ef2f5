"""Processes that a worker's envs have started end after the worker has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from paceline.system.descendants import MARK, kill_group, kill_marked, new_mark

POSIX = pytest.mark.skipif(os.name != "posix", reason="process groups")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="subreapers are of Linux")


@POSIX
def test_a_worker_leads_a_group_and_its_children_inherit_group_and_mark() -> None:
    show = "import os; print(os.getpgrp(), os.environ['PACELINE_WORKER_MARK'])"
    script = (
        "import os, subprocess, sys; from paceline.system.descendants import lead_group; lead_group('a mark');"
        f"print(os.getpid(), flush=True); subprocess.run([sys.executable, '-c', {show!r}])"
    )
    own, child = subprocess.check_output([sys.executable, "-c", script], text=True).splitlines()
    assert child == f"{own} a mark"


@POSIX
def test_kill_group_kills_what_is_left_of_a_group_whose_leader_has_ended() -> None:
    script = ["sh", "-c", "sleep 900 >/dev/null & echo $!"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, start_new_session=True) as leader:
        assert leader.stdout is not None
        member = psutil.Process(int(leader.stdout.readline()))
    kill_group(leader.pid)
    member.wait(30)
    kill_group(leader.pid)  # nothing is left: no error


def test_kill_marked_kills_processes_with_one_of_the_marks_and_no_others() -> None:
    command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(900)"]
    marks = [new_mark(), new_mark(), new_mark()]
    started = [
        subprocess.Popen(command, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, text=True) for mark in marks
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        kill_marked(marks[:2])
        assert [process.wait(30) for process in started[:2]] == [-signal.SIGKILL] * 2
        assert started[2].poll() is None
    finally:
        for process in started:
            process.kill()
            process.communicate()


@LINUX
def test_kill_children_ends_orphans_that_this_process_has_adopted() -> None:
    script = """
import subprocess
from paceline.system.descendants import adopt_orphans, kill_children
adopt_orphans()
subprocess.run(["sh", "-c", "setsid sleep 900 >/dev/null 2>&1 & echo $!"])
kill_children()
"""
    pid = int(subprocess.check_output([sys.executable, "-c", script], text=True))
    assert not psutil.pid_exists(pid)

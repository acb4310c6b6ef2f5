"""The kernel kills a process, or its whole group, when the other end of a pipe closes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_dies_when_its_pipe_closes_before_or_after_the_setup(when: str) -> None:
    close = {"before": "os.close(w); die_with_parent(r)", "after": "die_with_parent(r); os.close(w)"}[when]
    imports = "import os, time; from paceline.system.die_with_parent import die_with_parent"
    script = f"{imports}; r, w = os.pipe(); {close}; time.sleep(60)"
    assert subprocess.run([sys.executable, "-c", script], timeout=50).returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_kernel_kills_the_whole_group_on_request(when: str) -> None:
    close = {"before": "os.close(w); die(r)", "after": "die(r); os.close(w)"}[when]
    script = f"""
import os, subprocess, time
from functools import partial
from paceline.system.die_with_parent import die_with_parent
die = partial(die_with_parent, whole_group=True)
r, w = os.pipe()
subprocess.Popen(["sleep", "900"])
{close}
time.sleep(60)
"""
    # communicate() ends when no process of the group holds the pipe any more.
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as leader:
        leader.communicate(timeout=50)
    assert leader.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
def test_outlive_parent_undoes_it() -> None:
    script = (
        "import os; from paceline.system.die_with_parent import die_with_parent, outlive_parent; r, w = os.pipe();"
        "die_with_parent(r); outlive_parent(r); os.close(w); print('alive')"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True, timeout=50) == "alive\n"

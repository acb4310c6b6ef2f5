"""The kernel kills a process when the other end of a pipe closes."""

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

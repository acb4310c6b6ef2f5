"""The fork server exits at once, and not by SIGTERM."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import atexit, os, signal
atexit.register(print, "slow exit", flush=True)
{imports}
os.kill(os.getpid(), signal.SIGTERM)
print("alive", flush=True)
"""


def run(imports: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(imports=imports)], capture_output=True, text=True, timeout=100
    )


def test_the_server_survives_a_sigterm_and_skips_all_other_exit_handlers() -> None:
    ended = run("import paceline.runtime.server_exit")
    assert (ended.returncode, ended.stdout) == (0, "alive\n")


def test_another_process_ends_by_sigterm() -> None:
    assert run("").returncode < 0

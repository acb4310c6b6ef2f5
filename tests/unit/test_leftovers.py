"""The fixture that looks for leftovers finds them, and blames nobody else."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks at /proc and /dev/shm")

LEAVES = {
    "child": "import subprocess; subprocess.Popen(['sleep', '20'])",
    # The parent in between ends, so that only the environment still says whose process this is; and that cannot be
    # read while the process is being replaced by its program: the test waits until it has been.
    "orphan": (
        "import os, pathlib, time\n"
        "    pid = os.popen('setsid sleep 20 >/dev/null 2>&1 & echo $!').read().strip()\n"
        "    while not pathlib.Path('/proc', pid, 'cmdline').read_bytes().startswith(b'sleep'): time.sleep(0.01)"
    ),
    "entry": "open('/dev/shm/{name}', 'w').close()",
}
CLEAN = {
    "nothing": "pass",
    "ended": "import subprocess; subprocess.run(['true'])",
    "server": "import multiprocessing as m; p = m.get_context('forkserver').Process(target=print); p.start(); p.join()",
    "removed": "import os; open('/dev/shm/{name}', 'w').close(); os.unlink('/dev/shm/{name}')",
}


def _run(bodies: dict[str, str], tmp_path: Path, *, grace_s: float) -> str:
    """What pytest prints about tests with these bodies, under our conftest."""
    name = f"paceline_test_{uuid.uuid4().hex}"
    conftest = CONFTEST.read_text(encoding="utf-8").replace("GRACE_S = 3.0", f"GRACE_S = {grace_s}")
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    tests = [f"def test_{what}():\n    {body.format(name=name)}\n" for what, body in bodies.items()]
    (tmp_path / "test_it.py").write_text("\n".join(tests), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-v", "-rN", "-p", "no:cacheprovider", "-W", "ignore", "."]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout
    finally:
        Path("/dev/shm", name).unlink(missing_ok=True)


@pytest.mark.alone
def test_leftovers_fail_the_test_that_left_them(tmp_path: Path) -> None:
    shown = _run(LEAVES, tmp_path, grace_s=0.3)
    # The bodies pass; it is the look around afterwards that fails.
    assert f"{len(LEAVES)} passed, {len(LEAVES)} errors" in shown
    assert shown.count("left behind after 0.3 s: processes ['") == 2
    assert "/dev/shm entries ['paceline_test_" in shown


@pytest.mark.alone
def test_what_cleans_up_passes(tmp_path: Path) -> None:
    # The fixture looks until nothing is left, so a long time costs nothing here and helps on a busy machine.
    assert f"{len(CLEAN)} passed in" in _run(CLEAN, tmp_path, grace_s=20.0)

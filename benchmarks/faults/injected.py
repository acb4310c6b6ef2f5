"""The faults that chaos injects into a trainer process, its workers, its envs and its disk."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from benchmarks.faults.trainer_life import Life

DISK_MB = 512
"""Size of the tmpfs for all runs, if this user may mount one."""


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False if the process does not exist."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


Fault = Callable[[Life, random.Random], bool]
"""Injects a fault into a life; returns whether it took effect."""


def kill_worker(life: Life, chance: random.Random) -> bool:
    """Kill a worker, as the out-of-memory killer does."""
    workers = life.workers()
    return bool(workers) and send(chance.choice(workers), signal.SIGKILL)


def pause_worker(life: Life, chance: random.Random) -> bool:
    """Stop a worker for up to a second."""
    workers = life.workers()
    if not workers or not send(pid := chance.choice(workers), signal.SIGSTOP):
        return False
    time.sleep(chance.uniform(0.1, 1.0))
    send(pid, signal.SIGCONT)
    return True


def stop_worker(life: Life, chance: random.Random) -> bool:
    """Stop a worker and never resume it."""
    workers = life.workers()
    return bool(workers) and send(chance.choice(workers), signal.SIGSTOP)


def pause_trainer(life: Life, chance: random.Random) -> bool:
    """Stop the trainer for up to a second, as on an overloaded machine."""
    if not send(life.process.pid, signal.SIGSTOP):
        return False
    time.sleep(chance.uniform(0.1, 1.0))
    return send(life.process.pid, signal.SIGCONT)


def request(what: str) -> Fault:
    """Have one env of a worker misbehave (see chaos_env.py)."""

    def write_request(life: Life, _chance: random.Random) -> bool:
        if not life.workers():
            return False
        path = life.control / "request"
        path.with_suffix(".new").write_text(what)
        os.rename(path.with_suffix(".new"), path)
        deadline = perf_counter() + 3.0
        while path.exists() and perf_counter() < deadline:
            time.sleep(0.02)
        taken = not path.exists()
        path.unlink(missing_ok=True)
        return taken

    return write_request


def small_disk(folder: Path) -> bool:
    """Mount a small tmpfs at the folder; False if this user may not."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "paceline-chaos", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def full_disk(life: Life, chance: random.Random) -> bool:
    """Fill the tmpfs of the runs for a while; without one, limit the size of files that the trainer may write."""
    folder = life.run.parent
    if not folder.is_mount():
        return _forbid_writes(life, chance)
    with tempfile.TemporaryFile(dir=folder) as filler:
        life.disk = True
        for _ in range(3):  # the run may write or delete files in the meantime
            with suppress(OSError):
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, shutil.disk_usage(folder).free)
        time.sleep(chance.uniform(0.5, 2.5))
    return True


def _forbid_writes(life: Life, chance: random.Random) -> bool:
    try:
        soft, hard = resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE, (0, hard))
        life.disk = True
        time.sleep(chance.uniform(0.5, 2.5))
        resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    except ProcessLookupError:
        return False
    return True


def slow_disk(life: Life, chance: random.Random) -> bool:
    """Make every fsync of the trainer take most of a second, for a while."""
    (life.control / "slow").touch()
    time.sleep(chance.uniform(0.5, 2.0))
    (life.control / "slow").unlink()
    return True


def signal_trainer(number: signal.Signals) -> Fault:
    """Send a signal to the trainer."""
    return lambda life, _chance: send(life.process.pid, number)


FAULTS: dict[str, tuple[int, Fault]] = {
    "kill -9 of a worker": (16, kill_worker),
    "worker stopped and resumed": (6, pause_worker),
    "worker stopped for good": (1, stop_worker),
    "trainer stopped and resumed": (4, pause_trainer),
    "env hangs in Python": (1, request("hang")),
    "env hangs with the GIL held": (1, request("hang_gil")),
    "env segfaults": (4, request("segfault")),
    "env calls os._exit": (3, request("exit")),
    "env calls sys.exit": (3, request("sys_exit")),
    "full disk": (3, full_disk),
    "slow disk": (3, slow_disk),
    "kill -9 of the trainer": (1, signal_trainer(signal.SIGKILL)),
    "Ctrl-C": (1, signal_trainer(signal.SIGINT)),
    "SIGTERM": (1, signal_trainer(signal.SIGTERM)),
}
ENDING = ("kill -9 of the trainer", "Ctrl-C", "SIGTERM")
"""Faults that end a life."""
WITHOUT_WORKERS = ("full disk", "slow disk", "trainer stopped and resumed", *ENDING)
"""Faults that need no workers."""

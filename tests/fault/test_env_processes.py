"""Envs that start processes of their own, as simulators do. None of these outlives its worker or the driver."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import gymnasium
import psutil
import pytest

from paceline import PPO, make_vec
from paceline.train.callbacks import Callbacks, Moment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs process groups, /proc and a subreaper")

LIMIT_S = 30.0
"""How long a test waits for processes to end. They end within 2 s unless the machine is busy."""


def in_group() -> int:
    return subprocess.Popen(["sleep", "900"]).pid


def in_session() -> int:
    return subprocess.Popen(["sleep", "900"], start_new_session=True).pid


def as_daemon() -> int:
    """Start a process whose parent, the shell, ends at once."""
    command = ["sh", "-c", "setsid sleep 900 >/dev/null 2>&1 & echo $!"]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def forked_session() -> int:
    """Fork without exec: /proc does not show such a process's environment."""
    process = multiprocessing.get_context("fork").Process(target=_sleep_in_session, daemon=True)
    process.start()
    assert process.pid is not None
    return process.pid


def _sleep_in_session() -> None:
    os.setsid()
    time.sleep(900)


STARTS: list[Callable[[], int]] = [in_group, in_session, as_daemon]


class Simulated(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that starts a simulator in a worker, writes its pid to a file `WORKER-SIMULATOR`, and never ends it."""

    def __init__(self, start: Callable[[], int], folder: Path) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        if multiprocessing.parent_process() is not None:
            (folder / f"{os.getpid()}-{start()}").touch()


def simulators(folder: Path, worker: int | None = None) -> set[int]:
    """Pids of the simulators, of one worker or of all processes."""
    names = [path.name.split("-") for path in folder.iterdir()]
    return {int(pid) for owner, pid in names if worker in (None, int(owner))}


def living(pids: set[int]) -> set[int]:
    alive = set()
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                alive.add(pid)
        except psutil.NoSuchProcess:
            pass
    return alive


def waited_for(what: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT_S
    while not what() and time.monotonic() < deadline:
        time.sleep(0.02)
    return what()


@pytest.mark.parametrize("start", STARTS)
def test_closing_ends_the_processes_of_the_envs(start: Callable[[], int], tmp_path: Path) -> None:
    envs = make_vec(lambda: Simulated(start, tmp_path), 4, num_workers=2)
    envs.reset(seed=1)
    started = {pid for worker in envs.pids for pid in simulators(tmp_path, worker)}
    assert len(living(started)) >= 4
    envs.close()
    assert waited_for(lambda: not living(started))


@pytest.mark.parametrize("start", STARTS)
def test_a_killed_worker_takes_along_the_processes_of_its_envs_and_no_others(
    start: Callable[[], int], tmp_path: Path
) -> None:
    folder = tmp_path / "simulators"
    folder.mkdir()
    seen: dict[str, set[int]] = {}

    class KillOne(Callbacks):
        def on_update(self, moment: Moment) -> None:
            owners = {int(path.name.split("-")[0]) for path in folder.iterdir()}
            if not seen:
                victim, other = owners
                seen["lost"], seen["kept"] = simulators(folder, victim), simulators(folder, other)
                os.kill(victim, signal.SIGKILL)
            elif len(owners) == 3 and "left" not in seen:  # it has been replaced
                waited_for(lambda: not living(seen["lost"]))
                seen["left"], seen["running"] = living(seen["lost"]), living(seen["kept"])

    with PPO(
        lambda: Simulated(start, folder), n_envs=4, n_steps=16, batch_size=64, num_workers=2, group_size=1,
        n_eval_episodes=0, output_dir=tmp_path / "run",
    ) as agent:  # fmt: skip
        agent.learn(1000, callbacks=[KillOne()])
    assert len(seen["lost"]) >= 2
    assert len(seen["kept"]) >= 2
    assert seen["left"] == set()
    assert seen["running"] == seen["kept"]


SCRIPT = """
import sys, time
from pathlib import Path
from paceline import make_vec
from tests.fault import test_env_processes as here
envs = make_vec(lambda: here.Simulated(here.{start}, Path({folder!r})), 4, num_workers=2, {settings})
envs.reset(seed=1)
print(*envs.pids, flush=True)
{after}
time.sleep(900)
"""


@contextmanager
def driver(
    start: str, folder: Path, *, after: str = "", settings: str = ""
) -> Iterator[tuple[subprocess.Popen[str], IO[str], list[int]]]:
    """Start a driver; yields it, its output, and the pids of its workers when their envs have been made and reset."""
    script = SCRIPT.format(start=start, folder=str(folder), after=after, settings=settings)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout, [int(pid) for pid in process.stdout.readline().split()]
        finally:
            process.kill()


@pytest.mark.parametrize("start", [*STARTS, forked_session])
def test_a_killed_driver_takes_along_the_processes_of_all_envs(start: Callable[[], int], tmp_path: Path) -> None:
    with driver(start.__name__, tmp_path) as (_, _, workers):
        started = {pid for worker in workers for pid in simulators(tmp_path, worker)}
        assert len(living(started)) >= 4
    assert waited_for(lambda: not living({*started, *workers}))


@pytest.mark.parametrize("settings", ["", "start_method='spawn'", "start_method='fork'"])
def test_a_forked_child_of_the_driver_keeps_no_worker_alive(settings: str, tmp_path: Path) -> None:
    child = "import os\nif child := os.fork():\n    print(child, flush=True)"
    with driver("in_group", tmp_path, after=child, settings=settings) as (process, output, workers):
        forked = int(output.readline())
        children = psutil.Process(process.pid).children(recursive=True)
        # Python's resource tracker serves forked children too, so it stays as long as they do.
        others = {one.pid for one in children if "resource_tracker" not in " ".join(one.cmdline())} - {forked}
        process.kill()
        process.wait()
        try:
            assert waited_for(lambda: not living({*workers, *others}))
            assert living({forked}) == {forked}
        finally:
            os.kill(forked, signal.SIGKILL)

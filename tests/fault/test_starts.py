"""Workers lost during start-up: while they make their envs, and during the first reset."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import gymnasium as gym
import pytest
from tests.fault.modes import ASYNC, EXACT, SEED, config

from paceline.envs.fault import FaultEnv
from paceline.errors import WorkerHung, WorkerLost
from paceline.measure.record import Summary
from paceline.train.run import Run, open_folder


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hung() -> None:
    time.sleep(3600.0)


def flawed(folder: Path, fails: Callable[[], None]) -> Callable[[], gym.Env[Any, Any]]:
    """Envs that take worker 0 along when they are made and worker 1 when they are reset; once each, and per folder."""

    class Flawed(FaultEnv):
        def __init__(self) -> None:
            super().__init__(run_seed=SEED)
            self._fail_once("paceline-worker-0")

        def reset(self, **more: Any) -> Any:
            self._fail_once("paceline-worker-1")
            return super().reset(**more)

        def _fail_once(self, name: str) -> None:
            if multiprocessing.current_process().name == name:
                try:
                    (folder / name).touch(exist_ok=False)
                except FileExistsError:
                    return
                fails()

    return Flawed


def go(settings: Any) -> Summary:
    with Run(settings, folder=open_folder(settings) if settings.run.output_dir else None) as run:
        return run.go()


# Where each worker tries an env first, that one has no name yet.
@pytest.mark.parametrize("mode", [mode for mode in (*EXACT, *ASYNC) if mode != "own pace"])
def test_a_worker_that_is_killed_while_it_starts_is_replaced(mode: str, tmp_path: Path) -> None:
    found = go(config(mode, flawed(tmp_path, killed), output_dir=tmp_path / "run"))
    assert found.finished
    assert (found.restarts, found.restarted) == (2, 0)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "worker 0 (pid " in log
    assert "ended in `start`, at env 0: killed by SIGKILL" in log
    assert re.search(r"ended in `reset`, at envs? 4(-[57])?: killed by SIGKILL", log)
    if mode in EXACT:
        undisturbed = go(config(mode, flawed(tmp_path, killed)))
        assert undisturbed.restarts == 0
        assert found.weights_sha256 == undisturbed.weights_sha256


def test_a_worker_that_hangs_while_it_starts_is_replaced(tmp_path: Path) -> None:
    # On a busy machine a start may take longer than that by itself, and is tried again.
    limits: dict[str, Any] = {"start_timeout_s": 3.0, "max_restarts": 5}
    found = go(config("parallel", flawed(tmp_path, hung), **limits, output_dir=tmp_path / "run"))
    assert found.finished
    assert found.restarts >= 2
    log = (tmp_path / "run" / "train.log").read_text()
    assert "no sign of life in `start`, at env 0 for" in log
    assert "no sign of life in `reset`, at env 4 for" in log
    assert log.count("in _fail_once") == 2, "both stacks"


@pytest.mark.parametrize("mode", ["parallel", "dqn"])
def test_a_worker_that_is_killed_while_a_run_is_resumed_is_replaced(mode: str, tmp_path: Path) -> None:
    env = flawed(tmp_path, killed)
    go(config(mode, env, output_dir=tmp_path / "run", total_timesteps=800))
    copytree(tmp_path / "run", tmp_path / "copy")
    expected = go(config(mode, env, output_dir=tmp_path / "copy", resume=True))
    for worker in range(2):
        (tmp_path / f"paceline-worker-{worker}").unlink()
    found = go(config(mode, env, output_dir=tmp_path / "run", resume=True))
    assert (found.restarts, found.restarted) == (2, 0)
    assert found.weights_sha256 == expected.weights_sha256


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"max_restarts": 1}, "It was replaced 1 times in a row without completing a call in between"),
        ({"recovery": "fail"}, "It is not replaced: recovery is `fail`"),
    ],
)
def test_a_worker_that_never_starts_ends_the_run_with_the_count(more: dict[str, Any], said: str) -> None:
    def make() -> FaultEnv:
        if multiprocessing.current_process().name == "paceline-worker-1":
            os._exit(9)
        return FaultEnv()

    with pytest.raises(WorkerLost, match=r"worker 1 .*`start`, at env 4: it ended with exit code 9") as caught:
        go(config("parallel", make, **more))
    assert said in str(caught.value)


def test_a_worker_that_hangs_at_every_start_ends_the_run_by_name() -> None:
    kwargs = {"mode": "slow_reset", "env_index": 2, "hang_s": 60.0}
    with pytest.raises(WorkerHung, match=r"worker 0 .*`reset`, at env 2 .*limit 1 s.*--start-timeout-s"):
        go(config("parallel", env_kwargs=kwargs, start_timeout_s=1.0, max_restarts=0))

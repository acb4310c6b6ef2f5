"""Workers that hang are named, killed and replaced; workers that are only slow are kept."""

from __future__ import annotations

import json
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.fault.modes import ASYNC, EXACT, config

from paceline.errors import EnvError, WorkerDied
from paceline.measure.record import Summary
from paceline.train.callbacks import Callbacks, Moment
from paceline.train.run import Run, open_folder

HANG = {"env_index": 6, "at_step": 4, "at_episode": 1}


def go(settings: Any) -> Summary:
    with Run(settings, folder=open_folder(settings) if settings.run.output_dir else None) as run:
        return run.go()


@pytest.mark.parametrize(("mode", "how"), [*((mode, "hang") for mode in EXACT), ("parallel", "hang_gil")])
def test_a_hung_worker_is_replaced_and_the_run_is_the_same(mode: str, how: str, tmp_path: Path) -> None:
    expected = go(config(mode))
    kwargs = {"mode": how, "once": str(tmp_path / "happened"), **HANG}
    found = go(config(mode, env_kwargs=kwargs, env_timeout_s=1.0, output_dir=tmp_path / "run"))
    assert found.restarts >= 1
    assert found.restarted == 0
    assert (found.weights_sha256, found.episodes) == (expected.weights_sha256, expected.episodes)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "worker 1 (pid " in log
    assert "no sign of life in `collect`, at env 6 for" in log
    assert 'fault.py", line' in log, "its stack"
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["restarts"] == found.restarts


@pytest.mark.parametrize(("mode", "how"), [*((mode, "hang") for mode in ASYNC), ("impala", "hang_gil")])
def test_hung_worker_is_replaced_in_async_modes_too(mode: str, how: str, tmp_path: Path) -> None:
    kwargs = {"mode": how, "once": str(tmp_path / "happened"), **HANG}
    with Run(config(mode, env_kwargs=kwargs, env_timeout_s=1.0)) as run:

        class Watch:
            def on_update(self, moment: Moment) -> bool:
                return bool(run.training.rollouts.restarts.count == 0)  # and then some more of it

        run.go(seconds=60.0, callbacks=Callbacks([Watch()]))
        summary = run.go(steps=200)
        notes = run.training.rollouts.restarts.notes()
    assert (tmp_path / "happened").exists()
    assert summary.restarts >= 1
    assert summary.restarted >= 4, "all envs of the worker"
    assert notes == [], "every replacement was reported"


CRASHES = {"exit": "it ended with exit code 7", "sys_exit": "SystemExit: 3", "segfault": "killed by SIGSEGV"}


@pytest.mark.parametrize(
    ("mode", "how"),
    [
        ("parallel", "segfault"),
        ("threads", "exit"),
        ("pipeline", "exit"),
        ("dqn", "sys_exit"),
        ("impala", "segfault"),
        ("a3c", "sys_exit"),
        ("dqn-async", "exit"),
    ],
)
def test_a_worker_brought_down_by_its_env_is_replaced(mode: str, how: str, tmp_path: Path) -> None:
    kwargs = {"mode": how, "once": str(tmp_path / "happened"), **HANG}
    found = go(config(mode, env_kwargs=kwargs, output_dir=tmp_path / "run"))
    assert found.finished
    assert found.restarts == 1
    log = (tmp_path / "run" / "train.log").read_text()
    assert CRASHES[how] in log
    assert ("Segmentation fault" in log) == (how == "segfault"), "the dump"
    assert ('fault.py", line' in log) == (how != "exit"), "its stack"
    if mode in EXACT:
        expected = go(config(mode))
        assert (found.weights_sha256, found.restarted) == (expected.weights_sha256, 0)


def test_a_stopped_worker_is_replaced() -> None:
    with Run(config("parallel", env_timeout_s=1.0)) as run:
        os.kill(run.training.runtime.pids()[0], signal.SIGSTOP)
        summary = run.go()
    assert summary.restarts == 1


def test_a_slow_start_is_a_notice_and_each_env_has_its_own_time(caplog: pytest.LogCaptureFixture) -> None:
    """Four envs of a worker that take 0.7 s each: more than the limit together, and nothing is dropped."""
    kwargs = {"mode": "slow_reset", "hang_s": 0.7}
    with caplog.at_level(logging.WARNING, "paceline"):
        summary = go(config("parallel", env_kwargs=kwargs, start_timeout_s=2.0, env_timeout_s=1.0, total_timesteps=128))
    assert summary.restarts == 0


def test_slow_first_reset_is_reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.runtime.worker_handle.WARN_AFTER_S", 0.2)
    kwargs = {"mode": "slow_reset", "env_index": 2, "hang_s": 1.5}
    with caplog.at_level(logging.WARNING, "paceline"):
        summary = go(config("parallel", env_kwargs=kwargs, start_timeout_s=30.0, total_timesteps=128))
    assert summary.restarts == 0
    assert "no sign of life in `reset`, at env 2 for" in caplog.text
    assert "--start-timeout-s" in caplog.text


def test_envs_that_crash_at_one_place_begin_new_episodes_in_the_end(tmp_path: Path) -> None:
    """An exactly restored env crashes at the same step again; the last attempt starts a new episode instead."""
    kwargs = {"mode": "exit", "env_index": 6, "at_step": 4, "at_episode": 1}
    summary = go(config("parallel", env_kwargs=kwargs, output_dir=tmp_path / "run"))
    assert summary.finished
    assert (summary.restarts, summary.restarted) == (3, 4)
    log = (tmp_path / "run" / "train.log").read_text()
    assert "it ended with exit code 7" in log
    assert "worker 1: envs 4-7 started new episodes." in log


@pytest.mark.parametrize("mode", ["parallel", "pipeline", "dqn"])
def test_recovery_by_restart_begins_new_episodes(mode: str, tmp_path: Path) -> None:
    kwargs = {"mode": "exit", "once": str(tmp_path / "happened"), **HANG}
    summary = go(config(mode, env_kwargs=kwargs, recovery="restart", output_dir=tmp_path / "run"))
    assert (summary.restarts, summary.restarted) == (1, 4)
    assert "worker 1: envs 4-7 started new episodes." in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.parametrize("mode", ["parallel", "impala", "dqn-async"])
def test_recovery_by_failing_ends_the_run(mode: str, tmp_path: Path) -> None:
    kwargs = {"mode": "exit", "once": str(tmp_path / "happened"), **HANG}
    with pytest.raises(WorkerDied, match=r"(?s)exit code 7.*recovery is `fail`"):
        go(config(mode, env_kwargs=kwargs, recovery="fail"))


def test_without_workers_a_hang_ends_the_run_by_name(tmp_path: Path) -> None:
    kwargs = {"mode": "hang", **HANG}
    before = signal.getsignal(signal.SIGUSR2)
    with pytest.raises(EnvError, match=r"env 6: no sign of life in `collect` for .*--num-workers 1"):
        go(config("sequential", env_kwargs=kwargs, env_timeout_s=1.0, output_dir=tmp_path / "run"))
    assert signal.getsignal(signal.SIGUSR2) == before
    assert 'fault.py", line' in (tmp_path / "run" / "train.log").read_text()

"""Exhausted resources: file descriptors, disk space, and memory for an env that leaks."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fault.modes import config

from paceline.errors import ConfigError
from paceline.measure.folder import RunFolder
from paceline.train.run import Run, open_folder


def test_a_disk_that_fills_up_costs_a_note_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config("sequential", output_dir=tmp_path / "run")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Run(settings, folder=open_folder(settings)) as run:
        monkeypatch.setattr("paceline.train.checkpoint._sync", full)
        monkeypatch.setattr(RunFolder, "write_json", full)
        summary = run.go()
    assert summary.finished
    log = (tmp_path / "run" / "train.log").read_text()
    assert "not saved (No space left on device). The run continues" in log
    assert "summary.json: not written (No space left on device)" in log


@pytest.mark.parametrize("setting", ["output_dir", "checkpoint_dir"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(setting: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folders: dict[str, Any] = {"output_dir": tmp_path / "run", setting: tmp_path / "file" / "below"}
    with pytest.raises(ConfigError, match=f"{setting} .*must be writable") as caught:
        open_folder(config("sequential", **folders))
    assert caught.value.exit_code == 2


def test_env_that_leaks_memory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.measure.growth.SETTLE_S", 0.0)
    monkeypatch.setattr("paceline.measure.growth.LEAST_MB", 10.0)
    monkeypatch.setattr("paceline.measure.growth.LEAST_RATIO", 1.01)
    monkeypatch.setattr("paceline.measure.machine.SystemSampler.__init__.__defaults__", (0.0,))
    monkeypatch.setattr("paceline.measure.machine.SystemSampler.SHARE", 1.0)
    settings = config("parallel", env_kwargs={"mode": "leak"}, output_dir=tmp_path / "run", total_timesteps=256)
    with Run(settings, folder=open_folder(settings)) as run:
        summary = run.go()
    log = (tmp_path / "run" / "train.log").read_text()
    assert "its memory grew from" in log
    assert "peak memory of a worker: " in log
    assert len(summary.worker_peak_mb) == 2
    assert min(summary.worker_peak_mb) > 128, "its envs kept as much"


def test_fork_is_refused_with_cuda_and_warned_of_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config("parallel", start_method="fork", total_timesteps=128)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.warns(RuntimeWarning, match="threads alive.*Prefer forkserver"), Run(settings) as run:
            run.go()
    finally:
        stop.set()
        thread.join()
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    with pytest.raises(ConfigError, match=r"CUDA is initialised here.*Use forkserver"):
        Run(settings)

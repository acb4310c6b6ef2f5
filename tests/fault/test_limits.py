"""Exhausted resources: file descriptors, disk space, and memory for an env that leaks."""

from __future__ import annotations

import errno
import resource
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fault.modes import config

from paceline.errors import ConfigError
from paceline.measure.folder import RunFolder
from paceline.measure.growth import SETTLE_S, MemoryGrowth
from paceline.system.descriptors import make_room
from paceline.system.threads import core_budget
from paceline.train.run import Run, open_folder


def limits(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> list[tuple[int, int]]:
    """Pretend these, and keep what they are set to."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: asked.append(pair))
    return asked


def test_the_limit_of_open_files_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = limits(monkeypatch, 64, 4096)
    make_room(64)
    [(soft, hard)] = asked
    assert 64 * 5 < soft < 1000
    assert hard == 4096
    asked.clear()
    limits(monkeypatch, 100_000, 100_000)
    make_room(64)
    assert not asked


def test_a_limit_that_cannot_be_raised_is_said_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 256, 256)
    with pytest.raises(
        ConfigError, match=r"num_workers=64: needs about \d+ file descriptors \(hard limit 256\).*ulimit -n \d+"
    ) as caught:
        make_room(64)
    fit = int(str(caught.value).rsplit("--num-workers ", 1)[1].rstrip("."))
    make_room(fit)
    assert caught.value.exit_code == 2


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
    assert "not saved (No space left on device); the run goes on" in log
    assert "summary.json: not written (No space left on device)" in log


@pytest.mark.parametrize("setting", ["output_dir", "checkpoint_dir"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(setting: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folders: dict[str, Any] = {"output_dir": tmp_path / "run", setting: tmp_path / "file" / "below"}
    with pytest.raises(ConfigError, match=f"{setting} .*must be writable") as caught:
        open_folder(config("sequential", **folders))
    assert caught.value.exit_code == 2


def test_memory_growth_is_reported_and_again_when_doubled() -> None:
    growth, names = MemoryGrowth(), {7: "worker 0 (pid 7)", 8: "worker 1 (pid 8)"}
    assert growth(0.0, {7: 100.0, 8: 300.0}, names) == []
    assert growth(SETTLE_S, {7: 300.0, 8: 300.0}, names) == [], "it has only now settled"
    assert growth(SETTLE_S + 60, {7: 420.0, 8: 330.0}, names) == []
    [note] = growth(SETTLE_S + 120, {7: 500.0, 8: 330.0}, names)
    assert "worker 0 (pid 7): its memory grew from 300 to 500 MB (100 MB a minute)" in note
    assert growth(SETTLE_S + 180, {7: 690.0, 8: 330.0}, names) == []
    assert len(growth(SETTLE_S + 240, {7: 700.0, 8: 330.0}, names)) == 1
    assert growth(300.0, {9: 900.0}, {9: "worker 0 (pid 9)"}) == [], "a new process is a new beginning"


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


@pytest.mark.parametrize(("quota", "cores"), [(None, 4), (2.5, 2), (0.5, 1), (64.0, 4)])
def test_the_core_budget_follows_affinity_and_quota(
    quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.system.threads.affinity", lambda: [0, 1, 2, 3])
    monkeypatch.setattr("paceline.system.threads.cpu_quota", lambda: quota)
    assert core_budget() == cores

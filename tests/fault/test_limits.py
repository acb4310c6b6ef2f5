"""Exhausted resources: file descriptors, disk space, and memory for an env that leaks."""

from __future__ import annotations

import errno
import shlex
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.fault.modes import config

from paceline import cli
from paceline.errors import ConfigError, NotSaved
from paceline.insight.runs.listing import listed
from paceline.measure.folder import RunFolder
from paceline.train import checkpoint
from paceline.train.run import Run, open_folder


def test_a_disk_that_fills_up_costs_a_note_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config("sequential", output_dir=tmp_path / "run")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Run(settings, folder=open_folder(settings)) as run:
        monkeypatch.setattr("paceline.train.checkpoint._sync", full)
        monkeypatch.setattr(RunFolder, "write_json", full)
        with pytest.raises(NotSaved, match=r"the last checkpoint.* \(No space left on device\)\. Free disk space"):
            run.go()
    log = (tmp_path / "run" / "train.log").read_text()
    assert "not saved (No space left on device). The run continues" in log
    assert "summary.json: not written (No space left on device)" in log


def test_a_disk_that_is_full_at_the_end_is_the_last_word_with_the_newest_checkpoint_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, sync, at = tmp_path / "my run", checkpoint._sync, list[Path]()

    def fills_up(path: Path) -> None:
        at.append(path)
        if checkpoint.step_name(128) in str(path) and path.name == checkpoint.STATE:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(path)

    monkeypatch.setattr(checkpoint, "_sync", fills_up)
    small = ["--num-workers", "0", "--n-envs", "8", "--n-steps", "8", "--batch-size", "64", "--n-eval-episodes", "0"]
    budget = ["--total-timesteps", "128", "--save-freq", "64", "--output-dir", str(folder)]
    assert cli.main(["train", "ppo", "--env", "CartPole-v1", *small, *budget]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-3] == (
        "error: the run ended at step 128, but these could not be written: the last checkpoint (No space left on "
        "device). Free disk space. To train on from the newest checkpoint:"
    )
    assert said[-2].endswith(f"paceline train ppo --resume '{folder}'")
    assert said[-1] == f"The last checkpoint is {folder / 'checkpoints' / checkpoint.step_name(64)}"
    assert listed(folder).remark == "NotSaved"

    monkeypatch.setattr(checkpoint, "_sync", sync)  # there is space again
    assert cli.main(shlex.split(said[-2])[shlex.split(said[-2]).index("train") :]) == 0
    assert checkpoint.find(folder).name == checkpoint.step_name(128)


def test_a_failure_that_was_made_good_before_the_end_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last save fails, and succeeds when it is tried again at the very end."""
    settings, failures = config("sequential", output_dir=tmp_path / "run", save_freq=0), [True]

    def once(path: Path) -> None:
        if path.name == checkpoint.STATE and failures and failures.pop():
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "_sync", once)
    with Run(settings, folder=open_folder(settings)) as run:
        assert run.go().finished
        assert checkpoint.find(tmp_path / "run").name == checkpoint.step_name(run.training.tracker.steps)


def test_rows_that_could_not_be_written_are_an_error_although_the_checkpoint_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_fd: int, _data: memoryview) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    settings = config("sequential", output_dir=tmp_path / "run")
    with Run(settings, folder=open_folder(settings)) as run:
        monkeypatch.setattr("paceline.measure.append._write_all", full)
        with pytest.raises(NotSaved, match=r": the last rows of progress\.csv, .*\. Free disk space\.\nThe last ch"):
            run.go()


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
    assert "its memory (PSS) grew from" in log
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

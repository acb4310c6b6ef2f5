from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import ConfigError
from paceline.measure.folder import EVENTS, OWN_NAMES, RunFolder, folders_beside, write_atomic, write_output
from paceline.measure.record import EvaluationRow


def create(path: Path | None, **options: object) -> RunFolder:
    return RunFolder.create(path, env="CartPole-v1", algo="ppo", seed=7, **options)  # type: ignore[arg-type]


def test_new_folder_is_named_after_the_run(tmp_path: Path) -> None:
    run = RunFolder.create(None, env="ALE/Pong:v5 *", algo="ppo", seed=3, parent=tmp_path / "runs")
    assert run.path.is_dir()
    assert run.path.parent == tmp_path / "runs"
    env, algo, seed, stamp = run.path.name.split("__")
    assert (env, algo, seed) == ("ALE-Pong-v5", "ppo", "3")
    assert len(stamp) == len("20250101-120000")


def test_two_runs_in_one_second_get_two_folders(tmp_path: Path) -> None:
    paths = {create(None, parent=tmp_path).path for _ in range(4)}
    assert len(paths) == 4


def test_env_name_cannot_leave_the_parent(tmp_path: Path) -> None:
    run = RunFolder.create(None, env="../../..", algo="ppo", seed=0, parent=tmp_path)
    assert run.path.resolve().parent == tmp_path.resolve()


def test_given_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    assert create(tmp_path / "a" / "b").path.is_dir()


def test_foreign_files_are_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    create(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]  # and the probe is gone


@pytest.mark.parametrize("name", [*OWN_NAMES, f"{EVENTS}0000000001.host.1"])
def test_existing_run_is_refused_unless_asked(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(ConfigError, match=f"holds a run already .{name}.*--resume.*--overwrite"):
        create(tmp_path)
    assert (tmp_path / name).read_text() == "old"


def test_resume_keeps_every_file(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text("old")
    assert create(tmp_path, resume=True).path == tmp_path
    assert (tmp_path / "progress.csv").read_text() == "old"


def test_overwrite_removes_the_run_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (target / "keep").touch()
    run = tmp_path / "run"
    (run / "checkpoints" / "step_1").mkdir(parents=True)
    (run / "progress.csv").touch()
    (run / f"{EVENTS}0000000001.host.1").touch()
    (run / "notes.txt").touch()
    (run / "logs").symlink_to(target)
    create(run, overwrite=True)
    assert [p.name for p in run.iterdir()] == ["notes.txt"]
    assert (target / "keep").exists()


def test_overwrite_does_not_touch_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "config.yaml").write_text("precious")
    with pytest.raises(ConfigError, match=r"config\.yaml, logs, but is not the folder of a run"):
        create(tmp_path, overwrite=True)
    assert (tmp_path / "config.yaml").read_text() == "precious"


def test_overwrite_of_an_empty_folder_is_allowed(tmp_path: Path) -> None:
    assert create(tmp_path / "new", overwrite=True).path.is_dir()


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run in"):
        create(tmp_path / "none", resume=True)
    with pytest.raises(ConfigError, match="no run folder is given"):
        create(None, resume=True)
    with pytest.raises(ConfigError, match="Give one of them"):
        create(tmp_path, resume=True, overwrite=True)


def test_file_in_the_way_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file/run'.*must be writable \(Not a directory"):
        create(tmp_path / "file" / "run")
    with pytest.raises(ConfigError, match="must be writable"):
        create(None, parent=tmp_path / "file")
    with pytest.raises(ConfigError, match="must be writable"):
        create(tmp_path / "file")


def test_output_creates_its_folder_or_is_a_config_error(tmp_path: Path) -> None:
    file = tmp_path / "new" / "table.csv"
    write_output(file, "a,b\n", "csv")
    assert file.read_text() == "a,b\n"
    with pytest.raises(ConfigError, match=r"csv '.*table.csv/x': must be writable"):
        write_output(file / "x", "", "csv")


def test_full_disk_is_found_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left on device"):
        create(tmp_path / "run")


def test_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_atomic(path, "old")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_nan_and_infinities_become_null_in_json(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    content = {
        "eval": EvaluationRow(1.5, float("nan")),
        "array": np.array([1.0, np.inf]),
        "scalar": np.float32(0.5),
        "tuple": (1, True, None),
        "path": Path("x"),
    }
    run.write_json("layout.json", content)
    assert json.loads((run / "layout.json").read_text(), parse_constant=pytest.fail) == {
        "eval": {"mean_reward": 1.5, "mean_ep_length": None, "success_rate": None},
        "array": [1.0, None],
        "scalar": 0.5,
        "tuple": [1, True, None],
        "path": "x",
    }


def test_command_can_be_pasted_back(tmp_path: Path) -> None:
    argv = ["paceline", "train", "ppo", "--env-kwargs", '{"a b": 1}']
    run = create(tmp_path / "run")
    run.write_command(argv)
    assert shlex.split((run / "command.txt").read_text()) == argv


def test_a_missing_folder_gets_a_similar_one_or_the_newest_runs(tmp_path: Path) -> None:
    assert folders_beside(tmp_path / "runs" / "a") == "Give the folder of a run."
    for age, name in enumerate(["newest", "newer", "new", "old", "cartpole_1"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "no_run").mkdir()
    assert folders_beside(tmp_path / "cartpole_2") == f"Did you mean '{tmp_path}/cartpole_1'?"
    assert folders_beside(tmp_path / "else") == f"The newest runs in {tmp_path}: newest, newer, new."

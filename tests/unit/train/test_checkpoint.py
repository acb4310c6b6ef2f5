"""Snapshots: complete or refused when loaded, and loading never runs code."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.errors import CheckpointError
from paceline.train import checkpoint
from paceline.train.checkpoint import MANIFEST, STATE

ARRAYS = {
    "learner/weights": np.arange(6, dtype=np.float32),
    "learner/optimiser/step": np.array(3.0),
    "rollouts/history/actions": np.zeros((0, 2), np.int64),
    "rollouts/flags": np.array([True, False]),
    "strided": np.arange(10)[::2],
}


def saved(path: Path, **meta: Any) -> Path:
    checkpoint.save(path, ARRAYS, meta)
    return path


def test_arrays_and_meta_come_back_as_they_were(tmp_path: Path) -> None:
    snapshot = checkpoint.load(saved(tmp_path / "deep" / "one", steps=7, nested={"a": [1, None]}))
    assert snapshot.meta == {"steps": 7, "nested": {"a": [1, None]}}
    assert snapshot.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        got = snapshot.arrays[name]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert snapshot.part("learner").keys() == {"weights", "optimiser/step"}
    assert sorted(os.listdir(tmp_path / "deep")) == ["one"], "no temporary directory stays"


def test_saving_again_replaces_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "one", steps=1)
    checkpoint.save(path, {"other": np.ones(2)}, {"steps": 2})
    assert checkpoint.load(path).meta == {"steps": 2}
    assert list(checkpoint.load(path).arrays) == ["other"]
    assert os.listdir(tmp_path) == ["one"]


@pytest.mark.parametrize("at", [0, 9, 100, -1])
def test_a_flipped_bit_is_found(at: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "one")
    content = bytearray((path / STATE).read_bytes())
    content[at] ^= 1
    (path / STATE).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{STATE}: sha256 .* is not the .*earlier checkpoint"):
        checkpoint.load(path)


def test_a_truncated_file_is_found_with_its_sizes(tmp_path: Path) -> None:
    path = saved(tmp_path / "one")
    size = (path / STATE).stat().st_size
    os.truncate(path / STATE, size - 5)
    with pytest.raises(CheckpointError, match=rf"\({size - 5} of {size} bytes\)"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ("{}", "damaged"),
        (json.dumps({"format": 99, "files": {}, "meta": {}}), "unknown format 99"),
        (json.dumps({"format": checkpoint.FORMAT, "files": [], "meta": {}}), "damaged"),
        (json.dumps({"format": checkpoint.FORMAT, "files": {}, "meta": {}}), "sha256"),
        (json.dumps({"format": checkpoint.FORMAT, "files": {}, "meta": []}), "damaged"),
    ],
)
def test_a_damaged_manifest_is_named_in_the_error(content: str, said: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "one")
    (path / MANIFEST).write_text(content)
    with pytest.raises(CheckpointError, match=said):
        checkpoint.load(path)


def test_missing_files_are_named_in_the_error(tmp_path: Path) -> None:
    path = saved(tmp_path / "one")
    (path / STATE).unlink()
    with pytest.raises(CheckpointError, match=f"{STATE}: missing"):
        checkpoint.load(path)
    (path / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoint.load(path)


class Boom:
    """Writes a file when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.touch, (self.target,)


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    path, struck = saved(tmp_path / "one"), tmp_path / "struck"
    (path / STATE).write_bytes(pickle.dumps(Boom(struck)))
    with pytest.raises(CheckpointError):
        checkpoint.load(path)
    # Even with a manifest that agrees.
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"][STATE]["sha256"] = checkpoint._sha256(path / STATE)
    (path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        checkpoint.load(path)
    np.save(tmp_path / "pickled.npy", np.array([Boom(struck)], object), allow_pickle=True)
    (path / STATE).write_bytes((tmp_path / "pickled.npy").read_bytes())
    with pytest.raises(CheckpointError):
        checkpoint.load(path)
    assert not struck.exists()


def test_find_takes_a_snapshot_a_folder_of_them_or_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    best = saved(run / "best_model")
    assert checkpoint.find(run) == best
    steps = [saved(run / "checkpoints" / checkpoint.step_name(n)) for n in (999, 1000, 20_000)]
    assert checkpoint.find(run) == checkpoint.find(run / "checkpoints") == steps[-1]
    assert checkpoint.find(steps[0]) == steps[0]
    (run / "config.yaml").write_text("")
    assert checkpoint.run_folder(steps[0]) == checkpoint.run_folder(best) == run
    assert checkpoint.run_folder(saved(tmp_path / "alone")) is None


def test_checkpoints_are_where_the_config_of_the_run_says(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    saved(run / "checkpoints" / checkpoint.step_name(1))  # of an earlier run without checkpoint_dir
    (run / "config.yaml").write_text(f"run:\n  checkpoint_dir: {elsewhere}\n")
    newest = saved(elsewhere / checkpoint.step_name(2))
    assert checkpoint.find(run) == newest
    (run / "config.yaml").write_text("run:\n  checkpoint_dir: null\n")
    assert checkpoint.find(run).name == checkpoint.step_name(1)
    shutil.rmtree(run / "checkpoints")
    (run / "config.yaml").write_text(f"run:\n  checkpoint_dir: {tmp_path / 'gone'}\n")
    with pytest.raises(CheckpointError, match=r"contains no checkpoint, and neither does its checkpoint_dir .*gone"):
        checkpoint.find(run)


def test_find_names_a_missing_folder_and_a_folder_without_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "cartpole_1").mkdir()
    with pytest.raises(CheckpointError, match=r"no such folder\. Did you mean '.*/cartpole_1'"):
        checkpoint.find(tmp_path / "cartpole_l")
    with pytest.raises(CheckpointError, match="contains no checkpoint"):
        checkpoint.find(tmp_path / "cartpole_1")


def test_find_offers_the_previous_good_one(tmp_path: Path) -> None:
    first, second, third = (saved(tmp_path / checkpoint.step_name(n)) for n in (1, 2, 3))
    for broken in (second, third):
        os.truncate(broken / STATE, 20)
    with pytest.raises(CheckpointError) as caught:
        checkpoint.find(tmp_path)
    assert str(third / STATE) in str(caught.value)
    assert f"The newest undamaged one is {first}: resume with --resume {first}" in str(caught.value)
    os.truncate(first / STATE, 20)
    with pytest.raises(CheckpointError, match=str(third / STATE)):
        checkpoint.find(tmp_path)


def test_prune_keeps_the_newest_and_clears_what_killed_saves_left(tmp_path: Path) -> None:
    for n in (5, 50, 500, 5000):
        saved(tmp_path / checkpoint.step_name(n))
    (tmp_path / ".step_000000000600.77.tmp").mkdir()
    saved(tmp_path / "mine")
    newest = tmp_path / checkpoint.step_name(5000)
    checkpoint.prune(tmp_path, 2, newest)
    assert sorted(os.listdir(tmp_path)) == ["mine", "step_000000000500", "step_000000005000"]
    checkpoint.prune(tmp_path, 9, newest)
    assert len(checkpoint.steps(tmp_path)) == 2


def test_require_match_names_every_difference(tmp_path: Path) -> None:
    snapshot = checkpoint.load(saved(tmp_path / "one", identity={"env": "A-v0", "weights": 10, "extra": 1}))
    checkpoint.require_match(snapshot, {"env": "A-v0", "weights": 10})
    with pytest.raises(CheckpointError) as caught:
        checkpoint.require_match(snapshot, {"env": "B-v0", "weights": 10, "algo": "ppo"})
    assert "env is 'A-v0' there and 'B-v0' here" in str(caught.value)
    assert "algo is None there and 'ppo' here" in str(caught.value)
    assert "weights" not in str(caught.value)


@pytest.mark.parametrize("call", ["pathlib.Path.write_bytes", "os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_save_that_fails_leaves_the_previous_one(
    call: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "one", steps=1)

    def fails(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(call, fails)
    with pytest.raises(type(error)):
        saved(path, steps=2)
    with pytest.raises(type(error)):
        saved(tmp_path / "two")
    monkeypatch.undo()
    assert checkpoint.load(path).meta == {"steps": 1}
    assert os.listdir(tmp_path) == ["one"]


def killed_save(path: Path, moment: int) -> int:
    """Save in a process that is killed before the given system call of its own; returns how it ended."""
    child = os.fork()
    if child == 0:
        left = moment

        def counted(call: Any) -> Any:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return wrapped

        for name in ("mkdir", "open", "fsync", "replace", "rmdir", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        checkpoint.save(path, {"a": np.ones(3)}, {"steps": 2})
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("name", ["best_model", "checkpoints/step_000000000064"])
def test_a_kill_at_any_moment_of_a_save_leaves_the_old_or_the_new_one(name: str, tmp_path: Path) -> None:
    """Killed before each of its system calls in turn, when replacing a snapshot."""
    seen = []
    for moment in range(60):
        path = tmp_path / str(moment) / name
        checkpoint.save(path, ARRAYS, {"steps": 1})
        code = killed_save(path, moment)
        found = checkpoint.find(tmp_path / str(moment))
        assert found == path
        seen.append(checkpoint.load(found).meta["steps"])
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert seen[0] == 1
    assert seen[-1] == 2
    assert seen == sorted(seen)
    assert len(seen) > 5, "it was killed in the middle"
    checkpoint.save(tmp_path / "0" / name, ARRAYS, {"steps": 3})
    assert checkpoint.load(tmp_path / "0" / name).meta == {"steps": 3}


def test_prune_keeps_the_checkpoint_that_was_just_written(tmp_path: Path) -> None:
    for step in (900, 950, 1000, 40):
        written = tmp_path / checkpoint.step_name(step)
        checkpoint.save(written, {"a": np.zeros(2)}, {})
    checkpoint.prune(tmp_path, 1, written)
    assert [path.name for path in checkpoint.steps(tmp_path)] == [checkpoint.step_name(40), checkpoint.step_name(1000)]

"""Checkpoints and models are listed from new to old, and every kind of damage is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.unit.insight.snapshots import damage, run_of_three, snapshot

from paceline.errors import CheckpointError
from paceline.insight.verify import earlier_good, verify
from paceline.train import checkpoint


def test_the_newest_comes_first_and_the_best_model_last(tmp_path: Path) -> None:
    steps = run_of_three(tmp_path)
    best = snapshot(tmp_path / "best_model")
    for place in (tmp_path, tmp_path / "checkpoints"):
        expected = [*reversed(steps), *([best] if place == tmp_path else [])]
        assert [verdict.path for verdict in verify(place)] == expected
    assert [verdict.path for verdict in verify(steps[0])] == [steps[0]]


def test_checkpoints_in_the_checkpoint_dir_of_a_run_are_listed(tmp_path: Path) -> None:
    found = snapshot(tmp_path / "elsewhere" / checkpoint.step_name(100))
    best = snapshot(tmp_path / "run" / "best_model")
    (tmp_path / "run" / "config.yaml").write_text(f"run:\n  checkpoint_dir: {tmp_path / 'elsewhere'}\n")
    assert [verdict.path for verdict in verify(tmp_path / "run")] == [found, best]


def test_good_and_damaged_are_told_apart(tmp_path: Path) -> None:
    first, second, third = run_of_three(tmp_path)
    damage(second)
    damage(third)
    verdicts = verify(tmp_path)
    assert [verdict.good for verdict in verdicts] == [False, False, True]
    assert "sha256" in verdicts[0].error
    assert verdicts[0].contents == ()
    assert verdicts[2].path == first
    assert earlier_good(third) == first


def test_a_newer_checkpoint_is_no_earlier_one(tmp_path: Path) -> None:
    first, _, _ = run_of_three(tmp_path)
    damage(first)
    assert earlier_good(first) is None


def test_the_contents_name_parts_shapes_and_what_it_is_for(tmp_path: Path) -> None:
    (verdict,) = verify(snapshot(tmp_path / "one"))
    assert verdict.contents[0] == "algorithm ppo, env CartPole-v1, steps 4,096"
    assert verdict.contents[1].startswith("a checkpoint to resume from")
    assert "learner/weights: float32 [3], 12 bytes" in verdict.contents
    assert "rollouts/history: int64 [5, 2], 80 bytes" in verdict.contents
    model = tmp_path / "model"
    checkpoint.save(model, {"learner/weights": np.zeros(3, np.float32)}, {"identity": {"algo": "dqn"}})
    assert verify(model)[0].contents[1].startswith("a model, without training state")


@pytest.mark.parametrize(
    ("arrays", "meta", "error"),
    [
        ({"learner/weights": np.zeros(3)}, {"identity": {}}, "weights are float64, not float32"),
        ({"learner/weights": np.zeros((1, 3), np.float32)}, {"identity": {}}, r"weights have shape \(1, 3\)"),
        ({"learner/weights": np.zeros(3, np.float32)}, {"identity": {"weights": 4}}, "the network has 4 parameters"),
        ({"learner/weights": np.full(3, np.inf, np.float32)}, {"identity": {}}, "weights are NaN or infinite"),
        ({"other": np.zeros(3, np.float32)}, {"identity": {}}, "not a snapshot of a training"),
        ({"learner/weights": np.zeros(3, np.float32)}, {}, "not a snapshot of a training"),
    ],
)
def test_intact_files_with_wrong_contents_are_damaged(
    tmp_path: Path, arrays: dict[str, np.ndarray], meta: dict[str, object], error: str
) -> None:
    checkpoint.save(tmp_path / "one", arrays, meta)
    (verdict,) = verify(tmp_path / "one")
    assert not verdict.good
    with pytest.raises(AssertionError, match=error):
        raise AssertionError(verdict.error)


def test_a_snapshot_that_has_lost_a_file_is_still_listed(tmp_path: Path) -> None:
    for lost in (checkpoint.MANIFEST, checkpoint.STATE):
        path = snapshot(tmp_path / lost)
        (path / lost).unlink()
        (verdict,) = verify(path)
        assert not verdict.good


def test_a_folder_without_snapshots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        verify(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(CheckpointError):
        verify(tmp_path)

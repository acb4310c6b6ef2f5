"""What a run says at its end about files that could not be written."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import NotSaved
from paceline.train import checkpoint
from paceline.train.saving import Saving


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def save(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", save)
    return monkeypatch


def test_a_failed_write_is_a_note_and_an_error_only_until_a_later_one_succeeds(
    tmp_path: Path, full: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    saving = Saving(notes.append)
    assert saving.snapshot(tmp_path / "step_1", {}, {}) is None
    assert notes == [
        f"{tmp_path / 'step_1'}: not saved (No space left on device). The run continues; the previous one is kept"
    ]
    with pytest.raises(NotSaved, match=r"ended at step 7, but .*: the last checkpoint \(No space left on device\)"):
        saving.require_all(7, None, None)
    full.undo()
    assert saving.snapshot(tmp_path / "step_2", {"x": np.zeros(1)}, {}) == tmp_path / "step_2"
    saving.require_all(7, None, None)


@pytest.mark.usefixtures("full")
def test_only_a_lost_checkpoint_is_a_reason_to_resume(tmp_path: Path) -> None:
    saving = Saving(lambda _: None)
    saving.snapshot(tmp_path / "best_model", {}, {})
    with pytest.raises(NotSaved, match=r": best_model \(No space left on device\)\. Free disk space\.$"):
        saving.require_all(7, None, "paceline train ppo --resume runs/x")
    saving.snapshot(tmp_path / "step_1", {}, {})
    with pytest.raises(NotSaved, match=r"from the newest checkpoint:\n  paceline train ppo --resume runs/x$"):
        saving.require_all(7, None, "paceline train ppo --resume runs/x")

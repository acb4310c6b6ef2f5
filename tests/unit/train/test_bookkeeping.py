"""What happens after each update: notes in the log, evaluation, the best model, checkpoints and the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.config.train_config import TrainConfig
from paceline.train.callbacks import Callbacks, Moment
from paceline.train.run import Run, open_folder

SMALL: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 0, "n_envs": 4, "n_steps": 16, "hidden_sizes": (8,), "quiet": True,
    "n_eval_episodes": 0, "total_timesteps": 640,
}  # fmt: skip
NAN_ONCE: dict[str, Any] = {
    "env": "paceline.envs.fault:FaultEnv",
    "env_kwargs": {"mode": "nan_obs", "env_index": 2},
    "on_nan": "warn",
}


class LogReader:
    """Counts, after each update, the notes about skipped updates that are in the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.seen: list[int] = []

    def on_update(self, _: Moment) -> None:
        self.seen.append(self._path.read_text().count("skipped updates so far: "))


@pytest.mark.parametrize(
    ("algo", "settings"),
    [
        ("ppo", {"n_epochs": 1, "batch_size": None}),
        ("ppo", {"n_epochs": 1, "batch_size": None, "num_workers": 2}),
        ("impala", {}),
        ("a3c", {}),
    ],
)
def test_skipped_updates_are_shown_during_the_run(algo: str, settings: dict[str, Any], tmp_path: Path) -> None:
    config = TrainConfig.from_flat(**{**SMALL, **NAN_ONCE, "algo": algo, "output_dir": tmp_path / "run", **settings})
    reader = LogReader(tmp_path / "run" / "train.log")
    with Run(config, folder=open_folder(config)) as run:
        summary = run.go(callbacks=Callbacks([reader]))
    assert summary.skipped_updates == 1
    assert reader.seen[0] == 1, "the step with the NaN is in the first rollout"
    assert set(reader.seen) == {1}, "one note, and no other"


def test_a_run_without_skipped_updates_shows_no_note_about_them(tmp_path: Path) -> None:
    config = TrainConfig.from_flat(**{**SMALL, "output_dir": tmp_path / "run"})
    with Run(config, folder=open_folder(config)) as run:
        run.go()
    assert "skipped updates" not in (tmp_path / "run" / "train.log").read_text()

"""Snapshots on disk for tests: good ones, and ways to damage them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.train import checkpoint


def snapshot(path: Path, *, weights: int = 3, promised: int = 3, value: float = 1.0) -> Path:
    arrays = {"learner/weights": np.full(weights, value, np.float32), "learner/version": np.array(4)}
    arrays |= {"tracker/counts": np.arange(2), "rollouts/history/actions": np.zeros((5, 2), np.int64)}
    meta = {"identity": {"algo": "ppo", "env": "CartPole-v1", "weights": promised}, "steps": 4096}
    checkpoint.save(path, arrays, meta)
    return path


def run_of_three(folder: Path) -> list[Path]:
    return [snapshot(folder / "checkpoints" / checkpoint.step_name(step)) for step in (100, 200, 300)]


def damage(path: Path) -> None:
    state = bytearray((path / checkpoint.STATE).read_bytes())
    state[-1] ^= 1
    (path / checkpoint.STATE).write_bytes(state)

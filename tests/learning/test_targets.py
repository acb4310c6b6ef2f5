"""Every algorithm learns what it has to, on every seed, with the settings in `configs/`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.learning.settings import LEARNING

from paceline.train.run import train

SEEDS = range(5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNING)
def test_reaches_its_target_within_its_budget(name: str, seed: int, tmp_path: Path) -> None:
    target = LEARNING[name]
    own = {"seed": seed, "stop_at_score": target.mean_return, "output_dir": tmp_path / "run"}
    summary = train(target.config.merge(**own))
    assert summary.stop_reason == "callback StopAtScore", f"not within {summary.steps:,} steps"
    if summary.algo in ("impala", "appo"):
        assert summary.lag["max"] <= target.config.training.max_lag  # type: ignore[attr-defined]

"""`paceline bench` end to end on short windows: what it reports, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.cli import bench as command
from paceline.insight import bench
from paceline.insight.bench import Bench


def test_ratios_are_taken_inside_each_round() -> None:
    """Ratios do not change if the machine is twice as fast in the second round."""
    found = Bench(2, (10.0, 20.0, 10.0), (4.0, 8.0, 4.0), (8.0, 16.0, 8.0), {}, {})
    assert found.ratio("parallel", "sequential") == (2.0, 0.0)
    assert found.ratio("parallel", "limit") == pytest.approx((0.8, 0.0))


def test_by_default_there_are_no_more_workers_than_groups_and_envs_that_wait_have_a_limit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "core_budget", lambda: 8)
    file = tmp_path / "bench.json"
    words = [
        "--env",
        "paceline/Busy-v0",
        "--env-kwargs",
        "cpu_ms=0",
        "sleep_ms=1",
        "--n-envs",
        "4",
        "--group-size",
        "2",
    ]
    command.run([*words, "--n-steps", "8", "--no-learner", "--rounds", "1", "--window-s", "0.05", "--json", str(file)])
    result = json.loads(file.read_text())
    assert result["parallel"]["num_workers"] == 2
    assert result["limit_steps_per_s"] > 0
    assert result["parallel"]["memory_mb"] > result["sequential"]["memory_mb"]

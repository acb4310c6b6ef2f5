"""Child processes that train in windows, started the way the suites start them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.harness.contestants import Contestant, ContestantFailed
from benchmarks.harness.paths import SOURCE
from benchmarks.harness.settings import CARTPOLE_PPO

OURS: dict[str, dict[str, Any]] = {
    "ppo": {"num_workers": 0, "n_steps": 8},
    "impala": {"algo": "impala", "num_workers": 2, "n_steps": 8},
    "dqn": {"algo": "dqn", "schedule": "async", "num_workers": 2, "learning_starts": 64},
}


@pytest.mark.parametrize("algo", OURS)
def test_paceline_trains_in_windows(algo: str) -> None:
    settings = {"env": "CartPole-v1", "n_envs": 8, "seed": 0, "hidden_sizes": [8], "shared": [], "ours": OURS[algo]}
    with Contestant("benchmarks.harness.windows_paceline", settings, log=f"test-{algo}.log") as contestant:
        assert contestant.read_reply()["library"].startswith("paceline ")
        windows = [contestant.window(0.2) for _ in range(3)]
    assert all(window.seconds >= 0.2 for window in windows)
    assert sum(window.steps for window in windows) > 0  # IMPALA may learn from slots that arrived between windows
    assert all({"learn_s", "laps_s", "parts_s"} <= set(window.reply) for window in windows)


def test_the_child_of_two_checkouts_imports_the_source_it_is_given() -> None:
    settings = {
        "algo": "ppo",
        "env": "benchmarks.harness.frames_env:Frames",
        "n_envs": 2,
        "num_workers": 0,
        "n_steps": 4,
    }
    settings |= {"policy": "nature_cnn"}
    with Contestant("benchmarks.harness.two_checkouts_child", settings, log="test-two.log") as contestant:
        assert contestant.read_reply()["source"].startswith(str(SOURCE))
        assert contestant.window(0.0).steps > 0


def test_a_child_that_fails_is_an_error_with_the_end_of_its_log() -> None:
    settings = {**CARTPOLE_PPO, "env": "NoSuchEnv-v0"}
    with (
        Contestant("benchmarks.harness.windows_paceline", settings, log="test-fails.log") as contestant,
        pytest.raises(ContestantFailed, match="NoSuchEnv"),
    ):
        contestant.read_reply()

"""The public names are pinned: adding or dropping one is a decision, not an accident."""

from __future__ import annotations

import paceline

PUBLIC = [
    "A3C",
    "APPO",
    "DQN",
    "IMPALA",
    "PPO",
    "Extra",
    "PacelineError",
    "ParallelVectorEnv",
    "RewardShaper",
    "TrainConfig",
    "Transition",
    "make_vec",
]


def test_public_names_are_pinned_and_there() -> None:
    names = list(getattr(paceline, "__all__", []))
    assert names == PUBLIC  # ruff keeps them sorted, constants first
    assert [name for name in names if not hasattr(paceline, name)] == []

"""The public names are pinned: adding or dropping one is a decision, not an accident."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def test_an_unknown_name_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'SAC'. It has A3C, APPO, DQN, IMPALA, PPO, "):
        paceline.SAC  # noqa: B018


def test_gymnasium_knows_our_envs_after_the_import_and_the_import_alone_loads_nothing() -> None:
    code = "import gymnasium, paceline; assert 'paceline/NetworkDefence-v0' in gymnasium.registry"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, paceline; assert not {'gymnasium', 'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

"""`make_vec`: invalid settings raise before a process starts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.vector.toys import SampleEnv

from paceline import make_vec
from paceline.errors import ConfigError


@pytest.mark.parametrize(
    ("env", "settings", "text"),
    [
        ("CartPole-v9000", {"num_envs": 2}, "not registered"),
        (SampleEnv, {}, "num_envs: required"),
        (SampleEnv, {"num_envs": 0}, "num_envs=0"),
        (SampleEnv, {"num_envs": 2, "num_workers": 3}, "must not be above num_envs"),
        (SampleEnv, {"num_envs": 2, "start_method": "teleport"}, "this platform has"),
        (SampleEnv, {"num_envs": 2, "autoreset_mode": "Never"}, "NextStep"),
        (SampleEnv, {"num_envs": 2, "env_threads": 0}, "env_threads=0"),
        (SampleEnv, {"num_envs": 2, "env_kwargs": {"speed": 2}}, "unknown argument 'speed'"),
        ([SampleEnv], {"num_envs": 2}, r"one function per env \(2; got 1\)"),
        (SampleEnv(), {"num_envs": 2}, "must be an id, an import path"),
    ],
)
def test_settings(env: Any, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_vec(env, **{"num_workers": 0, **settings})

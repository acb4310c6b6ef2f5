"""Misuse of a vector env raises a named error and leaves the vector env usable."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode
from tests.unit.vector.toys import SampleEnv

from paceline import ParallelVectorEnv, make_vec
from paceline.errors import ConfigError, EnvError


@pytest.fixture
def vec() -> Iterator[ParallelVectorEnv]:
    vec = make_vec(SampleEnv, 3, 0)
    yield vec
    vec.close()


def test_order_of_calls(vec: ParallelVectorEnv) -> None:
    actions = np.zeros(3, np.int64)
    with pytest.raises(error.ResetNeeded, match="before the first `step`"):
        vec.step(actions)
    with pytest.raises(error.NoAsyncCallError, match="no step is pending"):
        vec.recv()
    vec.reset(seed=0)
    vec.send(actions[:2], [0, 2])
    for call in (partial(vec.step, actions), vec.reset, vec.render, vec.async_reset):
        with pytest.raises(error.AlreadyPendingCallError, match="2 envs have a pending step"):
            call()
    with pytest.raises(error.AlreadyPendingCallError, match=r"envs \[2\] have a pending step"):
        vec.send(actions[:2], [1, 2])
    with pytest.raises(ValueError, match="min_ready=3: must be from 1 to the number of envs with a pending step"):
        vec.recv(3)
    assert vec.recv(2)[5].tolist() == [0, 2]
    vec.close()
    with pytest.raises(error.ClosedEnvironmentError, match="is closed"):
        vec.step(actions)


@pytest.mark.parametrize(
    ("actions", "ids", "text"),
    [
        (np.zeros(2, np.int64), None, r"must have shape \(3,\)"),
        (np.zeros((3, 1), np.int64), None, r"got \(3, 1\)"),
        (np.zeros(3, np.float32), None, "must be int64 .got float32"),
        (np.zeros(2, np.int64), [0, 0], "must not repeat"),
        (np.zeros(1, np.int64), [3], "must be between 0 and 2"),
        (np.zeros(1, np.int64), [-1], "must be between 0 and 2"),
        (np.zeros(1, np.int64), [0.5], "list of env indices"),
        (np.zeros(1, np.int64), [], "list of env indices"),
    ],
)
def test_actions_and_ids(vec: ParallelVectorEnv, actions: Any, ids: Any, text: str) -> None:
    vec.reset(seed=0)
    with pytest.raises(ValueError, match=text):
        vec.send(actions, ids)
    vec.step([0, 1, 2])


def test_parts_of_actions() -> None:
    vec = make_vec(partial(SampleEnv, None, spaces.Dict({"a": spaces.Discrete(2), "t": spaces.Text(3)})), 2, 0)
    vec.reset(seed=0)
    for wrong in ({"a": [0, 1]}, [0, 1], {"a": [0, 1], "t": ("x",)}):
        with pytest.raises(ValueError, match="actions"):
            vec.step(wrong)
    vec.close()


def test_seeds_and_masks(vec: ParallelVectorEnv) -> None:
    with pytest.raises(ValueError, match=r"one seed per env \(3; got 2\)"):
        vec.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="array of bool"):
        vec.reset(options={"reset_mask": [True, False, True]})
    for mask in (np.zeros(3, np.bool_), np.ones(2, np.bool_)):
        with pytest.raises(ValueError, match="select at least one env"):
            vec.reset(options={"reset_mask": mask})


def test_with_autoreset_disabled_an_ended_env_must_be_reset_before_a_step() -> None:
    vec = make_vec(SampleEnv, 3, 0, autoreset_mode=AutoresetMode.DISABLED)
    vec.reset(seed=0)
    ended = np.zeros(3, np.bool_)
    while not ended.any():
        _, _, terminated, truncated, _ = vec.step(vec.action_space.sample())
        ended = terminated | truncated
    with pytest.raises(error.ResetNeeded, match="autoreset is disabled"):
        vec.step(vec.action_space.sample())
    vec.reset(options={"reset_mask": ended})
    vec.step(vec.action_space.sample())
    vec.close()


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


def test_envs_with_different_spaces_or_extras_raise() -> None:
    other = partial(SampleEnv, spaces.Discrete(2))
    with pytest.raises(EnvError, match=r"env 1: its observation_space \(Discrete\(2\)\) differs"):
        make_vec([SampleEnv, other], num_workers=0)
    one = SampleEnv()
    with pytest.raises(ConfigError, match="the same env twice"):
        make_vec(lambda: one, 2, 0)

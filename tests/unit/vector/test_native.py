"""A vector version in place of single envs: the same data, and a clear refusal of what needs single envs."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from paceline import ParallelVectorEnv, make_vec
from paceline.errors import ConfigError
from paceline.vector.native import WHY

ENV = "paceline/NetworkDefence-v0"
WORKFLOW = ("paceline/WorkflowDefence-v0", {"workflow": "op_server,enterprise,op_host,defender,user"})


def same(a: Any, b: Any) -> None:
    """Whether two infos, or parts of them, are equal and have equal types."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, np.ndarray) and a.dtype == object:
        for one, other in zip(a, b, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(a, b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("env", "kwargs"), [(ENV, {}), WORKFLOW])
def test_it_returns_the_data_of_single_envs(env: str, kwargs: dict[str, Any], mode: AutoresetMode) -> None:
    settings: dict[str, Any] = {"env_kwargs": {**kwargs, "max_steps": 4}, "autoreset_mode": mode}
    one, other = make_vec(env, 3, **settings), make_vec(env, 3, 0, native_vector="never", **settings)
    assert one.why.startswith(WHY)
    assert one.metadata == other.metadata
    assert (one.observation_space, one.action_space) == (other.observation_space, other.action_space)
    for seed in (5, None, [3, 1, 2]):
        for left, right in zip(one.reset(seed=seed), other.reset(seed=seed), strict=True):
            same(left, right)
    one.action_space.seed(1)
    for step in range(11):
        if mode is AutoresetMode.DISABLED and step % 4 == 0:  # resets two envs early, and the third with a seed
            for which in ([True, False, True], [False, True, False]):
                options = {"reset_mask": np.array(which)}
                seeds = [None, 8 + step, None]
                for left, right in zip(
                    *(v.reset(seed=seeds, options=dict(options)) for v in (one, other)), strict=True
                ):
                    same(left, right)
        actions = one.action_space.sample()
        for left, right in zip(one.step(actions), other.step(actions), strict=True):
            same(left, right)
        same(one.extras(), other.extras())
    one.close()
    other.close()


def test_send_and_recv_step_all_envs() -> None:
    with closing(make_vec(ENV, 4)) as vec:
        vec.async_reset(seed=1)
        vec.recv(4)
        vec.send(vec.action_space.sample())
        *_, ids = vec.recv()
        assert ids.tolist() == [0, 1, 2, 3]
        vec.send(vec.action_space.sample()[:2], [0, 1])
        with pytest.raises(ConfigError, match=r"steps all envs together.*native_vector='never'"):
            vec.recv()


def test_asking_single_envs_is_refused_and_leaves_it_open() -> None:
    with closing(make_vec(ENV, 4)) as vec:
        vec.reset(seed=1)
        for ask in (lambda: vec.call("true_state"), lambda: vec.set_attr("x", 1), vec.render):
            with pytest.raises(ConfigError, match="no single envs"):
                ask()
        vec.step(vec.action_space.sample())


def test_what_the_env_raises_reaches_the_caller() -> None:
    vec = make_vec("CartPole-v1", 4, native_vector="always")
    vec.reset(seed=1)
    with pytest.raises(AssertionError):
        vec.step(np.array([0, 1, 2, 7]))
    assert vec.closed


@pytest.mark.parametrize(
    ("env", "settings", "why"),
    [
        (ENV, {"num_workers": 0}, WHY),
        (ENV, {"num_workers": 1}, "is usually faster"),
        (ENV, {"env_kwargs": {"render_mode": "ansi"}}, "is usually faster"),
        (ENV, {"num_workers": 0, "native_vector": "never"}, "0 workers, as requested"),
        ("CartPole-v1", {"num_workers": 0}, r"native_vector='always'\), but its episodes differ"),
        ("CartPole-v1", {"num_workers": 0, "native_vector": "always"}, WHY),
        (lambda: gym.make("CartPole-v1"), {"num_workers": 0}, "0 workers, as requested$"),
        ("CartPole-v1", {"num_workers": 0, "wrappers": ["gymnasium.wrappers:RecordEpisodeStatistics"]}, "requested$"),
    ],
)
def test_why_names_what_was_chosen_and_the_alternative(env: Any, settings: dict[str, Any], why: str) -> None:
    with closing(make_vec(env, 4, **settings)) as vec:
        assert isinstance(vec, ParallelVectorEnv)
        assert re.search(why, vec.why)


@pytest.mark.parametrize(
    ("env", "settings", "text"),
    [
        (ENV, {"num_workers": 2}, "num_workers=2: native_vector='always' steps all envs in this process"),
        ("CartPole-v1", {"autoreset_mode": "SameStep"}, "has 'NextStep'. Use that, or native_vector='never'"),
        ("Acrobot-v1", {}, "has no vector_entry_point"),
        (ENV, {"wrappers": ["gymnasium.wrappers:TimeLimit"]}, "wrappers and frame_stack need single envs"),
    ],
)
def test_always_raises_where_there_is_no_such_vector_version(env: str, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_vec(env, 4, native_vector="always", **settings)

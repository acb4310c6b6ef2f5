"""`EnvServer`: the envs of one process."""

from __future__ import annotations

import threading
from functools import partial
from time import perf_counter
from typing import Any

import pytest
from gymnasium import spaces
from tests.unit.vector.toys import SampleEnv

from paceline import make_vec
from paceline.errors import ConfigError, EnvError, WorkerError
from paceline.vector.server import Pretend


def test_envs_with_different_spaces_or_extras_raise() -> None:
    other = partial(SampleEnv, spaces.Discrete(2))
    with pytest.raises(EnvError, match=r"env 1: its observation_space \(Discrete\(2\)\) differs"):
        make_vec([SampleEnv, other], num_workers=0)
    one = SampleEnv()
    with pytest.raises(ConfigError, match="the same env twice"):
        make_vec(lambda: one, 2, 0)


class Secretive(SampleEnv):
    """Has an info that cannot be pickled."""

    def reset(self, **how: Any) -> Any:
        return super().reset(**how)[0], {"lock": threading.Lock()}


def test_an_info_that_cannot_be_sent_names_the_env() -> None:
    vec = make_vec(Secretive, 2, 1, env_threads=1)
    with pytest.raises(WorkerError, match="env 0: its info cannot be sent to the main process"):
        vec.reset(seed=0)
    vec.close()
    inline = make_vec(Secretive, 2, 0)
    assert len(inline.reset(seed=0)[1]["lock"]) == 2
    inline.close()


def test_a_result_that_cannot_be_sent_is_an_error_of_its_call_alone() -> None:
    vec = make_vec(SampleEnv, 2, 1, env_threads=1)
    with pytest.raises(TypeError, match="cannot be sent to the main process"):
        vec.ask(lambda env, number: threading.Lock())
    assert vec.get_attr("label") == ("new", "new")
    vec.close()


def test_a_simulated_step_takes_its_time_and_touches_no_env() -> None:
    began = perf_counter()
    Pretend(0.01, waits=False)()
    Pretend(0.01, waits=True)()
    assert perf_counter() - began >= 0.02

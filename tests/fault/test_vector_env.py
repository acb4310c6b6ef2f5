"""A vector env whose envs raise, die or hang: an error that says who and why, soon, and nothing left."""

from __future__ import annotations

import os
import signal
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import error as gym_error
from tests.unit.vector.toys import SampleEnv

from paceline import ParallelVectorEnv, make_vec
from paceline.errors import EnvError, PacelineError, WorkerDied, WorkerError, WorkerHung

FAULT = "paceline.envs.fault:FaultEnv"
ACTIONS = np.ones(4, np.int64)


def _step(vec: ParallelVectorEnv, steps: int) -> None:
    for _ in range(steps):
        vec.step(ACTIONS)


def step_until(kind: type[PacelineError], vec: ParallelVectorEnv, steps: int = 50) -> str:
    """The text of the failure; and afterwards it is closed, and says why."""
    with pytest.raises(kind) as caught:
        _step(vec, steps)
    began = perf_counter()
    vec.close()
    assert perf_counter() - began < 5
    with pytest.raises(gym_error.ClosedEnvironmentError, match="closed because of"):
        vec.step(ACTIONS)
    return str(caught.value)


class Third(gym.Wrapper[Any, Any, Any, Any]):
    """Hands the fault on to the env with seed 2 alone."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._mine = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._mine = seed == 2 if seed is not None else self._mine
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        if not self._mine:
            return np.zeros(4, np.float32), 0.0, False, False, {}
        return self.env.step(action)


def vec_with(mode: str, workers: int = 2, **more: Any) -> ParallelVectorEnv:
    vec = make_vec(FAULT, 4, workers, env_kwargs={"mode": mode, "at_step": 3}, wrappers=[Third], **more)
    vec.reset(seed=0)
    return vec


@pytest.mark.parametrize("threads", [1, 2])
def test_an_env_that_raises_is_named_with_its_worker_and_traceback(threads: int) -> None:
    text = step_until(WorkerError, vec_with("raise", env_threads=threads))
    assert "worker 1" in text
    assert "envs 2-3) failed in `step`: env 2 raised in step 3 with action np.int64(1)" in text
    assert "Traceback" in text


def test_an_env_of_this_process_that_raises_is_named() -> None:
    assert step_until(EnvError, vec_with("raise", workers=0)).startswith("env 2 raised in step 3")


def test_a_wrong_observation_is_refused_by_name() -> None:
    text = step_until(WorkerError, vec_with("wrong_shape"))
    assert "env 2 in step 3" in text
    assert "must be float32 of shape (4,), as its space says" in text


def test_an_env_that_takes_its_process_along_is_reported() -> None:
    assert "exit code 7" in step_until(WorkerDied, vec_with("exit"))


def test_an_env_that_hangs_is_reported() -> None:
    assert "no sign of life in `step`" in step_until(WorkerHung, vec_with("hang", env_timeout_s=0.5))


def test_a_worker_that_is_killed_between_steps_is_reported() -> None:
    vec = make_vec(SampleEnv, 4, 2)
    vec.reset(seed=0)
    vec.step(ACTIONS)
    os.kill(vec.pids[0], signal.SIGKILL)
    assert "worker 0" in (text := step_until(WorkerDied, vec))
    assert "SIGKILL" in text


def test_a_worker_that_is_killed_is_reported_by_calls_too() -> None:
    vec = make_vec(SampleEnv, 4, 2)
    vec.reset(seed=0)
    os.kill(vec.pids[1], signal.SIGKILL)
    with pytest.raises(WorkerDied, match="worker 1"):
        vec.get_attr("label")


def test_closing_does_not_wait_for_envs_under_way() -> None:
    vec = make_vec(FAULT, 4, 2, env_kwargs={"mode": "hang"}, env_threads=1)
    vec.reset(seed=0)
    vec.send(ACTIONS)
    began = perf_counter()
    vec.close()
    assert perf_counter() - began < 5


def test_an_info_that_cannot_travel_is_refused_by_name() -> None:
    class Locked(SampleEnv):
        def reset(self, **_: Any) -> Any:
            return super().reset()[0], {"lock": __import__("threading").Lock()}

    vec = make_vec(Locked, 2, 1)
    with pytest.raises(WorkerError, match=r"env 0: its info cannot be sent .*lock"):
        vec.reset()

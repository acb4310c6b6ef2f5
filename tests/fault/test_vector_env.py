"""A vector env whose envs raise, die or hang: a prompt error that names env and cause, and no process left behind."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing
from time import perf_counter, sleep
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium import error as gym_error
from gymnasium.utils import env_checker
from tests.unit.vector.toys import SampleEnv

from paceline import ParallelVectorEnv, make_vec
from paceline.envs.fault import OddError
from paceline.errors import EnvError, PacelineError, WorkerDied, WorkerError, WorkerHung
from paceline.runtime.doorbell import BUFFER_BYTES

FAULT = "paceline.envs.fault:FaultEnv"
ACTIONS = np.ones(4, np.int64)


def _step(vec: ParallelVectorEnv, steps: int) -> None:
    for _ in range(steps):
        vec.step(ACTIONS)


def step_until(kind: type[Exception], vec: ParallelVectorEnv, steps: int = 50) -> str:
    """The text of the failure, or of its cause; and afterwards the vector env is closed, and says why."""
    with pytest.raises(kind) as caught:
        _step(vec, steps)
    began = perf_counter()
    vec.close()
    assert perf_counter() - began < 5
    with pytest.raises(gym_error.ClosedEnvironmentError, match="closed because of"):
        vec.step(ACTIONS)
    error = caught.value
    return str(error if isinstance(error, PacelineError) else error.__cause__)


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
    text = step_until(RuntimeError, vec_with("raise", env_threads=threads))
    assert "worker 1" in text
    assert "envs 2-3) failed in `step`: env 2 raised in step 3 with action np.int64(1)" in text
    assert "Traceback" in text


def test_an_env_of_this_process_that_raises_is_named() -> None:
    assert step_until(RuntimeError, vec_with("raise", workers=0)).startswith("env 2 raised in step 3")


class Refused(ValueError):
    """An exception with an attribute, which is not known to the workers."""

    def __init__(self, action: int) -> None:
        super().__init__(action)
        self.action = action


class Picky(SampleEnv):
    def step(self, action: Any) -> Any:
        raise Refused(int(action))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_exception_of_an_env_is_raised_with_its_type_and_attributes(workers: int) -> None:
    vec = make_vec(Picky, 4, workers)
    vec.reset(seed=0)
    with pytest.raises(Refused) as caught:
        vec.step(ACTIONS)
    assert caught.value.action == 1
    assert isinstance(caught.value.__cause__, WorkerError if workers else EnvError)
    assert any("raised in step 1 with action" in note for note in caught.value.__notes__)
    assert vec.closed


def test_an_exception_that_cannot_be_sent_arrives_as_text() -> None:
    text = step_until(WorkerError, vec_with("raise_odd"))
    assert "OddError" in text
    assert step_until(OddError, vec_with("raise_odd", workers=0))


def test_a_wrong_observation_is_refused_by_name() -> None:
    text = step_until(WorkerError, vec_with("wrong_shape"))
    assert "env 2 in step 3" in text
    assert "must be float32 of shape (4,), as its space says" in text


def test_an_env_that_kills_its_process_is_reported() -> None:
    assert "exit code 7" in step_until(WorkerDied, vec_with("exit"))


def test_an_env_that_hangs_is_reported() -> None:
    text = step_until(WorkerHung, vec_with("hang", env_timeout_s=0.5))
    assert "no sign of life in `step`" in text
    assert "raise env_timeout_s" in text, "the argument of make_vec"


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


def test_close_does_not_wait_for_running_envs() -> None:
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


class Napping(SampleEnv):
    """Sleeps in `step` on request, or raises KeyboardInterrupt in the process that steps it."""

    name = "napping"
    interrupts = False

    def nap(self, seconds: float) -> str:
        sleep(seconds)
        return "slow"

    def step(self, action: Any) -> Any:
        if self.interrupts:
            raise KeyboardInterrupt
        return super().step(action)


def test_workers_that_were_idle_for_long_are_not_taken_for_hung() -> None:
    with closing(make_vec(Napping, 2, 2, env_timeout_s=1.0)) as vec:
        vec.reset(seed=0)
        sleep(1.5)
        os.kill(vec.pids[0], signal.SIGSTOP)  # it answers after the other
        timer = threading.Timer(0.4, os.kill, (vec.pids[0], signal.SIGCONT))
        timer.start()
        assert vec.get_attr("name") == ("napping",) * 2
        timer.join()


def test_the_timeout_applies_to_each_called_env() -> None:
    with closing(make_vec(Napping, 5, 1, env_timeout_s=1.0)) as vec:
        vec.reset(seed=0)
        assert vec.call("nap", 0.4) == ("slow",) * 5


def test_after_an_interrupt_no_call_gets_the_replies_of_another() -> None:
    with closing(make_vec(Napping, 2, 2)) as vec:
        vec.reset(seed=0)
        timer = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            vec.call("nap", 1.0)
        timer.join()
        with pytest.raises(gym_error.ClosedEnvironmentError, match="KeyboardInterrupt in call"):
            vec.get_attr("name")


def test_after_an_interrupt_envs_of_this_process_that_took_no_step_are_not_said_to_have() -> None:
    with closing(make_vec(Napping, 3, 0)) as vec:
        vec.reset(seed=0)
        vec.set_attr("interrupts", [False, True, False])
        with pytest.raises(KeyboardInterrupt):
            vec.step(np.ones(3, np.int64))
        with pytest.raises(gym_error.ClosedEnvironmentError, match="KeyboardInterrupt in step"):
            vec.recv(3)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_order_that_cannot_be_pickled_changes_nothing(workers: int) -> None:
    with closing(make_vec(SampleEnv, 4, workers)) as vec, closing(make_vec(SampleEnv, 4, 0)) as other:
        vec.reset(seed=0)
        if workers:
            with pytest.raises(TypeError, match="lock"):
                vec.reset(options={"lock": threading.Lock()})
        assert env_checker.data_equivalence(vec.reset(seed=1), other.reset(seed=1), exact=True)


def test_long_payload_to_a_dead_worker_raises() -> None:
    with closing(make_vec(SampleEnv, 1, 1)) as vec:
        vec.reset(seed=0)
        worker = psutil.Process(vec.pids[0])
        worker.kill()
        psutil.wait_procs([worker], timeout=5.0)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            vec.reset(options={"blob": b"x" * (2 * BUFFER_BYTES)})

"""`ThreadedEnvs`: failing, interrupted and hanging envs, and the cores of their threads."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from tests.unit.envs.test_threaded import ours, threaded
from tests.unit.envs.toys import SpaceEnv, blank_row, play, single

from paceline.envs import env_thread
from paceline.envs import threaded as threaded_envs
from paceline.envs.threaded import ThreadedEnvs
from paceline.errors import EnvError
from paceline.spec import EnvSpec
from paceline.system import one_core

FAULT = "paceline.envs.fault:FaultEnv"
N = 5


def test_the_failed_env_with_the_lowest_index_is_named() -> None:
    late = threading.Event()

    class Fails(SpaceEnv):
        number = 0

        def step(self, action: Any) -> Any:
            if self.number == 1:
                assert late.wait(5.0)  # env 3 has failed by now
                raise ValueError("the second")
            if self.number == 3:
                late.set()
                raise ValueError("the fourth")
            return super().step(action)

    made: list[Fails] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Fails())
        made[-1].number = len(made) - 2  # the first is the probe
        return made[-1]

    block, spec, _ = threaded(make, first_env=10)
    with pytest.raises(EnvError, match=r"env 11 \(seed 7, episode 0\) raised in step 1 .*ValueError: the second"):
        play(block, spec, N, 1)
    block.close()
    assert not ours()


def test_failures_read_the_same_as_without_threads() -> None:
    cases: list[dict[str, Any]] = [
        {"mode": "raise", "at_step": 3, "at_episode": 1},
        {"mode": "raise_reset", "at_episode": 1},
        {"mode": "wrong_shape", "at_step": 1},
    ]
    for case in cases:
        texts = []
        for block, spec, _ in (single(FAULT, n=N, kwargs={**case, "episode_length": 4}),
                               threaded(FAULT, kwargs={**case, "episode_length": 4})):  # fmt: skip
            with pytest.raises(EnvError) as caught:
                play(block, spec, N, 9)
            texts.append(str(caught.value))
            block.close()
        assert texts[0] == texts[1]


UNDECIDED: Any = (np.zeros(3, np.float32), 0.0, np.array([True, False]), False, {})


@pytest.mark.parametrize("returned", [None, (1, 2), UNDECIDED], ids=["none", "two", "flags"])
def test_an_invalid_step_result_raises_the_same_error_as_without_threads(returned: Any) -> None:
    class Old(SpaceEnv):
        def step(self, action: Any) -> Any:
            return returned

    texts = []
    for block, spec, _ in (single(Old, n=2), threaded(Old, n=2, threads=2)):
        with pytest.raises(EnvError, match="Step must return") as caught:
            play(block, spec, 2, 1)
        texts.append(str(caught.value))
        block.close()
    assert texts[0] == texts[1]


def interrupt(block: ThreadedEnvs, spec: EnvSpec, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step, and give up as Ctrl-C would while an env hangs."""

    def late() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threaded_envs, "LONG_S", 0.01)
        patch.setattr(block, "_name_the_slow", late)
        with pytest.raises(KeyboardInterrupt):
            block.step(np.zeros(n, np.int64), blank_row(spec, n), blank_row(spec, n))


@pytest.mark.parametrize("marching", [True, False])
def test_the_next_step_waits_for_an_interrupted_one(marching: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_thread, "CAN_BROADCAST", marching and env_thread.CAN_BROADCAST)
    free = threading.Event()
    made: list[Counting] = []

    class Counting(SpaceEnv):
        steps = 0

        def step(self, action: Any) -> Any:
            if len(made) > 1 and self is made[1]:
                assert free.wait(20.0)
            self.steps += 1
            return super().step(action)

    def make() -> gym.Env[Any, Any]:
        made.append(Counting())
        return made[-1]

    block, spec, _ = threaded(make)
    block.reset(blank_row(spec, N))
    interrupt(block, spec, N, monkeypatch)
    free.set()
    play(block, spec, N, 2)
    assert [env.steps for env in made[1:]] == [3] * N
    block.close()
    assert not ours()


def test_close_does_not_wait_for_an_env_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(env_thread, "CLOSE_TIMEOUT_S", 0.1)
    free = threading.Event()
    made: list[SpaceEnv] = []

    class Hangs(SpaceEnv):
        def step(self, action: Any) -> Any:
            if self is made[1]:
                free.wait(20.0)
            return super().step(action)

    def make() -> gym.Env[Any, Any]:
        made.append(Hangs())
        return made[-1]

    block, spec, _ = threaded(make, n=3, threads=3)
    block.reset(blank_row(spec, 3))
    interrupt(block, spec, 3, monkeypatch)
    with caplog.at_level(logging.WARNING):
        block.close()
    assert "env 0 raised in close: TimeoutError: an env of the same thread hangs" in caplog.text
    assert [env.closed for env in made[2:]] == [1, 1]
    free.set()
    for thread in ours():
        thread.join(5.0)
    assert not ours()


@pytest.mark.skipif(not one_core.CAN_BIND, reason="threads have no cores of their own here")
@pytest.mark.parametrize("children", [False, True])
def test_threads_are_bound_to_one_core_but_not_what_a_reset_starts(
    children: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_core, "_has_children", lambda: children)
    monkeypatch.setattr(env_thread, "CHECK_EVERY", 2)
    free = os.sched_getaffinity(0)
    if len(free) < 2:
        pytest.skip("there is but one core")

    class Where(SpaceEnv):
        stepped: frozenset[int] = frozenset()
        begun: frozenset[int] = frozenset()

        def step(self, action: Any) -> Any:
            self.stepped = frozenset(os.sched_getaffinity(0))
            return super().step(action)

        def reset(self, **kwargs: Any) -> Any:
            self.begun = frozenset(os.sched_getaffinity(0))
            return super().reset(**kwargs)

    made: list[Where] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Where(length=3))
        return made[-1]

    block, spec, _ = threaded(make)
    play(block, spec, N, 7)
    envs = made[1:]
    assert [env.begun for env in envs] == [free] * N
    assert len({env.stepped for env in envs}) == 1
    assert len(envs[0].stepped) == (len(free) if children else 1)
    assert os.sched_getaffinity(0) == free, "the caller was there for the step only"
    block.close()


@pytest.mark.skipif(not one_core.CAN_BIND, reason="threads have no cores of their own here")
def test_the_caller_has_its_own_cores_back_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_core, "_has_children", lambda: False)
    free = os.sched_getaffinity(0)
    if len(free) < 2:
        pytest.skip("there is but one core")
    seen: list[set[int]] = []

    def interrupted() -> None:
        seen.append(os.sched_getaffinity(0))
        raise KeyboardInterrupt

    team = env_thread.Team(2, "test")
    with pytest.raises(KeyboardInterrupt):
        team.all([lambda: None, interrupted])
    assert len(seen[0]) == 1
    assert os.sched_getaffinity(0) == free
    team.all([lambda: None, lambda: None])
    team.end()

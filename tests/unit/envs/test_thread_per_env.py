"""`ThreadPerEnv`: the same data as `SingleEnvs`, and a heartbeat that moves only if all busy threads do."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.envs.test_group_restore import histories_of
from tests.unit.envs.test_threaded import FAULT, SOURCES, Homely, Meets, N, ours, plain, same_rows, threaded
from tests.unit.envs.toys import SpaceEnv, Walk, advance, blank_row, of_singles, play, single

from paceline.envs import env_thread
from paceline.envs import thread_per_env as apart_module
from paceline.envs.block import History
from paceline.envs.extras import Extra
from paceline.envs.make import EnvRecipe
from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.errors import ConfigError, EnvError
from paceline.memory.worker_status import BEAT, SPAN, envs_of, spare
from paceline.spec import EnvSpec
from paceline.system import one_core


def thread_per_env(
    source: str | Callable[..., gym.Env[Any, Any]],
    n: int = N,
    *,
    seed: int = 7,
    first_env: int = 0,
    line: NDArray[np.int64] | None = None,
    **more: Any,
) -> tuple[ThreadPerEnv, EnvSpec, NDArray[np.int64]]:
    recipe = EnvRecipe(source=source, native_vector="never", **more)
    spec = recipe.probe()
    episode = np.zeros(n, np.int64)
    return ThreadPerEnv(of_singles(recipe, spec, seed, first_env, episode, line)), spec, episode


class Watched(SpaceEnv):
    """Has something beside its observations."""

    extras = {"age": Extra(shape=(), dtype="int64", read="age"), "last": Extra(shape=(), every="episode")}  # noqa: RUF012

    def age(self) -> int:
        return self.elapsed

    def info(self) -> dict[str, Any]:
        return {"last": float(len(self.taken))}


@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 1000))
@pytest.mark.parametrize("name", [*SOURCES, "extras"])
def test_threads_give_the_same_data_as_single_envs_also_after_a_restore(name: str, seed: int) -> None:
    source: Any = {**SOURCES, "extras": lambda: Watched(length=3)}[name]
    one, spec, one_episode = single(source, n=N, seed=seed, first_env=3)
    many, _, many_episode = thread_per_env(source, seed=seed, first_env=3)
    drawn = np.random.default_rng(seed).integers(0, 2, (12, N, *spec.action.shape)).astype(spec.action.dtype)
    rows, finals = play(one, spec, N, 12, lambda t: drawn[t])
    many_rows, many_finals = play(many, spec, N, 12, lambda t: drawn[t])
    same_rows(rows, many_rows)
    for a, b in zip(rows, many_rows, strict=True):
        assert all(a.extras[extra].tolist() == b.extras[extra].tolist() for extra in spec.extras)
    assert plain(finals) == plain(many_finals)
    assert one_episode.tolist() == many_episode.tolist()
    assert (many.readings is None) == (name != "extras")
    many.close()

    later, _, later_episode = thread_per_env(source, seed=seed, first_env=3)
    start = [blank_row(spec, N) for _ in range(5)]
    restarted = later.restore(histories_of(rows, N, spec), start[0])
    going_on = [rows[-1], *(blank_row(spec, N) for _ in range(4))]
    if name not in ("one array again and again", "extras"):  # those look different every time
        assert restarted == []
        assert plain(advance(one, going_on)) == plain(advance(later, start))
        same_rows(going_on[1:-1], start[1:-1])
        assert later_episode.tolist() == one_episode.tolist()
    later.close()


def test_pickled_envs_are_restored() -> None:
    many, spec, _ = thread_per_env(Walk)
    rows, _ = play(many, spec, N, 6)
    histories = [
        History(episode=h.episode, actions=h.actions, obs=h.obs, mask=h.mask, state=state)
        for h, state in zip(histories_of(rows, N, spec), many.dump(), strict=True)
    ]
    other, _, _ = thread_per_env(Walk)
    start = [blank_row(spec, N) for _ in range(9)]
    assert other.restore(histories, start[0]) == []
    going_on = [rows[-1], *(blank_row(spec, N) for _ in range(8))]
    assert plain(advance(many, going_on)) == plain(advance(other, start))
    same_rows(going_on[1:-1], start[1:-1])
    many.close()
    other.close()


def test_all_envs_are_in_step_and_in_reset_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Meets, "barrier", threading.Barrier(N))
    block, spec, episode = thread_per_env(lambda: Meets(length=2))
    monkeypatch.setattr(Meets, "lone", False)  # the probe was
    play(block, spec, N, 4)
    assert episode.tolist() == [2] * N
    block.close()


def test_each_env_is_made_stepped_and_closed_by_its_own_thread() -> None:
    made: list[Homely] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Homely())
        return made[-1]

    block, spec, _ = thread_per_env(make)
    rows, _ = play(block, spec, N, 3)
    block.restore(histories_of(rows, N, spec), blank_row(spec, N))
    block.dump()
    block.close()
    block.close()
    met = [env.met for env in made[1:]]  # the first is the probe
    assert all(len(threads) == 1 for threads in met)
    assert len({next(iter(threads)) for threads in met}) == N
    assert [env.closed for env in made[1:]] == [1] * N
    assert not ours()


@pytest.mark.parametrize(
    "case",
    [
        {"mode": "raise", "at_step": 3, "at_episode": 1},
        {"mode": "raise_reset", "at_episode": 1},
        {"mode": "wrong_shape", "at_step": 1},
    ],
)
def test_failures_read_the_same_as_one_after_another(case: dict[str, Any]) -> None:
    texts = []
    kwargs = {**case, "episode_length": 4}
    for block, spec, _ in (single(FAULT, n=N, kwargs=kwargs), thread_per_env(FAULT, kwargs=kwargs)):
        with pytest.raises(EnvError) as caught:
            play(block, spec, N, 9)
        texts.append(str(caught.value))
        block.close()
    assert texts[0] == texts[1]


@pytest.mark.parametrize("build", [threaded, thread_per_env])
def test_a_failing_constructor_leaves_no_thread_and_closes_what_was_made(build: Callable[..., Any]) -> None:
    made: list[SpaceEnv] = []

    def make() -> gym.Env[Any, Any]:
        if len(made) == 3:
            raise OSError("no licence left")
        made.append(SpaceEnv())
        return made[-1]

    with pytest.raises(EnvError, match=r"env 2 \(seed 7\) raised in its constructor: OSError: no licence left"):
        build(make)
    assert [env.closed for env in made] == [1, 1, 1]
    assert not ours()


@pytest.mark.parametrize("build", [threaded, thread_per_env])
def test_one_env_given_twice_is_refused(build: Callable[..., Any]) -> None:
    env = SpaceEnv()
    with pytest.raises(ConfigError, match="same env twice"):
        build(lambda: env)
    assert not ours()


def test_the_heartbeat_moves_once_all_busy_threads_have_moved_theirs() -> None:
    line = spare()
    block, _, _ = thread_per_env(SpaceEnv, n=3, first_env=10, line=line)
    for own in block.lines:
        own[SPAN] = 1
    block._look()  # they have been made
    before = int(line[BEAT])
    block.lines[0][BEAT] += 1
    block.lines[2][BEAT] += 1
    block._look()
    assert (int(line[BEAT]), envs_of(line)) == (before, "env 11"), "it stands still, whatever the others do"
    block.lines[1][BEAT] += 1
    block._look()
    assert int(line[BEAT]) == before + 1
    block._look()
    assert (int(line[BEAT]), envs_of(line)) == (before + 1, "env 10"), "no heartbeat has moved since"
    for own in block.lines:
        own[SPAN] = 0
    block.lines[2][SPAN] = 1
    block.lines[2][BEAT] += 1
    block._look()
    assert int(line[BEAT]) == before + 2, "who has nothing to do is not waited for"
    block.close()


def hung(made: list[SpaceEnv], free: threading.Event, n: int) -> tuple[ThreadPerEnv, EnvSpec]:
    """Envs of which the first hangs in its first step."""

    class Hangs(SpaceEnv):
        def step(self, action: Any) -> Any:
            if self is made[1]:
                assert free.wait(20.0)
            return super().step(action)

    def make() -> gym.Env[Any, Any]:
        made.append(Hangs())
        return made[-1]

    block, spec, _ = thread_per_env(make, n=n)
    block.reset(blank_row(spec, n))
    return block, spec


def interrupt(block: ThreadPerEnv, spec: EnvSpec, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step, and give up as Ctrl-C would while an env hangs."""

    def late() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(apart_module, "LOOK_S", 0.01)
        patch.setattr(block, "_look", late)
        with pytest.raises(KeyboardInterrupt):
            block.step(np.zeros(n, np.int64), blank_row(spec, n), blank_row(spec, n))


def test_the_next_step_waits_for_an_interrupted_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SpaceEnv] = []
    free = threading.Event()
    block, spec = hung(made, free, 3)
    interrupt(block, spec, 3, monkeypatch)
    free.set()
    play(block, spec, 3, 2)
    assert [len(env.taken) for env in made[1:]] == [3] * 3
    block.close()
    assert not ours()


def test_close_does_not_wait_for_an_env_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(env_thread, "CLOSE_TIMEOUT_S", 0.1)
    made: list[SpaceEnv] = []
    free = threading.Event()
    block, spec = hung(made, free, 3)
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
def test_threads_that_a_reset_starts_are_not_bound_to_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_core, "_has_children", lambda: False)
    monkeypatch.setattr(env_thread, "CHECK_EVERY", 2)
    free = os.sched_getaffinity(0)
    if len(free) < 2:
        pytest.skip("there is but one core")
    cores: dict[str, list[int]] = {"step": [], "reset": []}

    class Where(SpaceEnv):
        def step(self, action: Any) -> Any:
            cores["step"].append(len(os.sched_getaffinity(0)))
            return super().step(action)

        def reset(self, **kwargs: Any) -> Any:
            cores["reset"].append(len(os.sched_getaffinity(0)))
            return super().reset(**kwargs)

    block, spec, _ = thread_per_env(lambda: Where(length=3))
    play(block, spec, N, 7)
    assert set(cores["reset"]) == {len(free)}
    assert cores["step"][-1] == 1
    block.close()

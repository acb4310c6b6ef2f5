"""`ThreadedEnvs`: the same data as `SingleEnvs`, and how threads start, fail, hang and end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.envs.test_group_restore import histories_of
from tests.unit.envs.toys import ReusingEnv, SpaceEnv, Walk, advance, blank_row, of_singles, play, single

from paceline.envs import env_thread
from paceline.envs import threaded as threaded_envs
from paceline.envs.block import FinalObs, History
from paceline.envs.make import EnvRecipe
from paceline.envs.threaded import ThreadedEnvs
from paceline.memory.rows import Row
from paceline.memory.worker_status import BEAT, StatusLine, envs_of, spare
from paceline.spec import EnvSpec
from paceline.system import one_core

FAULT = "paceline.envs.fault:FaultEnv"
N = 5


def threaded(
    source: str | Callable[..., gym.Env[Any, Any]],
    n: int = N,
    *,
    threads: int = N,
    seed: int = 7,
    first_env: int = 0,
    line: StatusLine = None,
    **more: Any,
) -> tuple[ThreadedEnvs, EnvSpec, NDArray[np.int64]]:
    recipe = EnvRecipe(source=source, native_vector="never", **more)
    spec = recipe.probe()
    episode = np.zeros(n, np.int64)
    return ThreadedEnvs(of_singles(recipe, spec, seed, first_env, episode, line), threads), spec, episode


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("envs-")]


def same_rows(some: list[Row], others: list[Row]) -> None:
    for a, b in zip(some, others, strict=True):
        assert all(a.obs[name].tobytes() == b.obs[name].tobytes() for name in a.obs)
        assert a.mask is None or a.mask.tobytes() == (b.mask if b.mask is not None else np.zeros(0)).tobytes()
        for name in ("reward", "terminated", "truncated", "valid"):
            assert getattr(a, name).tolist() == getattr(b, name).tolist()


def plain(finals: list[FinalObs]) -> list[list[tuple[int, dict[str, bytes]]]]:
    return [[(i, {name: leaf.tobytes() for name, leaf in obs.items()}) for i, obs in row] for row in finals]


class ReusingMask(Walk):
    """Says what is legal in one array, again and again."""

    def __init__(self) -> None:
        super().__init__(masked=True)
        self.mask = np.zeros(3, np.int8)

    def reset(self, **kwargs: Any) -> Any:
        return self.again(super().reset(**kwargs))

    def step(self, action: Any) -> Any:
        return self.again(super().step(action))

    def again(self, result: Any) -> Any:
        self.mask[:] = result[-1]["action_mask"]
        result[-1]["action_mask"] = self.mask
        return result


SOURCES: dict[str, Any] = {
    "plain": Walk,
    "one mask again and again": ReusingMask,
    "dict": lambda: Walk(dict_obs=True),
    "masks": lambda: Walk(masked=True),
    "one array again and again": ReusingEnv,
    "Box actions": lambda: SpaceEnv(action_space=spaces.Box(-1.0, 1.0, (2,), np.float32), length=3),
    "CartPole": "CartPole-v1",
}


@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 1000), threads=st.integers(2, N + 2))
@pytest.mark.parametrize("name", SOURCES)
def test_threads_give_the_same_data_in_the_same_order_also_after_a_restore(name: str, seed: int, threads: int) -> None:
    source = SOURCES[name]
    one, spec, one_episode = single(source, n=N, seed=seed, first_env=3)
    many, _, many_episode = threaded(source, threads=threads, seed=seed, first_env=3)
    drawn = np.random.default_rng(seed).integers(0, 2, (12, N, *spec.action.shape)).astype(spec.action.dtype)
    rows, finals = play(one, spec, N, 12, lambda t: drawn[t])
    many_rows, many_finals = play(many, spec, N, 12, lambda t: drawn[t])
    same_rows(rows, many_rows)
    assert plain(finals) == plain(many_finals)
    assert one_episode.tolist() == many_episode.tolist()
    assert name == "CartPole" or any(finals), "truncations are part of it"
    many.close()

    later, _, later_episode = threaded(source, threads=threads, seed=seed, first_env=3)
    start = [blank_row(spec, N) for _ in range(5)]
    restarted = later.restore(histories_of(rows, N, spec), start[0])
    going_on = [rows[-1], *(blank_row(spec, N) for _ in range(4))]
    if name != "one array again and again":  # it counts its looks over all episodes, so it cannot be replayed
        assert restarted == []
        assert plain(advance(one, going_on)) == plain(advance(later, start))
        same_rows(going_on[1:-1], start[1:-1])
        assert later_episode.tolist() == one_episode.tolist()
    later.close()


def test_the_caller_may_do_other_work_while_envs_step() -> None:
    one, spec, _ = single(Walk, n=N, seed=3)
    many, _, _ = threaded(Walk, seed=3)
    rows, ahead_rows = ([blank_row(spec, N) for _ in range(9)] for _ in range(2))
    one.reset(rows[0])
    many.reset(ahead_rows[0])
    drawn = np.random.default_rng(0).integers(0, 2, (8, N))
    for t, action in enumerate(drawn):
        finals = one.step(action, rows[t], rows[t + 1])
        many.ahead(action)
        assert plain([many.step(action, ahead_rows[t], ahead_rows[t + 1])]) == plain([finals])
    same_rows(rows[:-1], ahead_rows[:-1])
    many.ahead(drawn[0])
    many.reset(ahead_rows[0])  # what was under way is forgotten
    one.reset(rows[0])
    same_rows([one_step(one, drawn[1], rows)], [one_step(many, drawn[1], ahead_rows)])
    many.close()


def one_step(block: Any, action: NDArray[Any], rows: list[Row]) -> Row:
    block.step(action, rows[0], rows[1])
    return rows[0]


def test_the_caller_stays_on_the_core_until_its_last_team_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_core, "_has_children", lambda: False)
    free = os.sched_getaffinity(0) if one_core.CAN_BIND else set()
    if len(free) < 2:
        pytest.skip("there is but one core")
    teams = [env_thread.Team(2, f"test-{number}", place=1) for number in range(2)]
    for team in teams:
        team.begin([lambda: None, None])
    seen = [os.sched_getaffinity(0)]
    for team in teams:
        team.finish()
        seen.append(os.sched_getaffinity(0))
    assert [len(each) for each in seen] == [1, 1, len(free)]
    for team in teams:
        team.end()


def test_pickled_envs_go_back_and_forth_between_one_thread_and_many() -> None:
    many, spec, _ = threaded(Walk)
    rows, _ = play(many, spec, N, 6)
    states = many.dump()
    histories = [
        History(episode=h.episode, actions=h.actions, obs=h.obs, mask=h.mask, state=state)
        for h, state in zip(histories_of(rows, N, spec), states, strict=True)
    ]
    runs = []
    one, _, _ = single(Walk, n=N)
    other, _, _ = threaded(Walk)
    for block in (many, one, other):
        start = [blank_row(spec, N) for _ in range(9)]
        if block is many:
            start[0] = rows[-1]
        else:
            assert block.restore(histories, start[0]) == []
        runs.append((start, plain(advance(block, start))))
    for start, finals in runs[1:]:
        same_rows(runs[0][0][1:-1], start[1:-1])
        assert finals == runs[0][1]
    many.close()
    other.close()


class Meets(SpaceEnv):
    """`step` and `reset` return only once all envs are in the same call."""

    barrier = threading.Barrier(N)
    lone = True

    def step(self, action: Any) -> Any:
        self.barrier.wait(5.0)
        return super().step(action)

    def reset(self, **kwargs: Any) -> Any:
        if not self.lone:
            self.barrier.wait(5.0)
        return super().reset(**kwargs)


def test_all_envs_are_in_step_and_in_reset_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Meets, "barrier", threading.Barrier(N))
    block, spec, episode = threaded(lambda: Meets(length=2))
    monkeypatch.setattr(Meets, "lone", False)  # the probe was
    play(block, spec, N, 4)
    assert episode.tolist() == [2] * N
    block.close()


def test_the_status_line_names_all_envs_before_they_are_stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Includes the envs of a block that is not waited for, so that an env that kills the process is named."""
    line, said = spare(), list[str]()

    class Telling(SpaceEnv):
        def step(self, action: Any) -> Any:
            said.append(envs_of(line))
            return super().step(action)

        def reset(self, **kwargs: Any) -> Any:
            said.append(envs_of(line))
            return super().reset(**kwargs)

    begin = env_thread.Team.begin

    def begin_and_look_away(team: env_thread.Team, jobs: Any) -> None:
        begin(team, jobs)
        while team._round.left:
            time.sleep(0.001)

    monkeypatch.setattr(env_thread.Team, "begin", begin_and_look_away)
    low, spec, _ = threaded(Telling, 2, first_env=4, line=line)
    high, _, _ = threaded(Telling, 3, first_env=6, line=line)
    rows = [[blank_row(spec, n) for _ in range(2)] for n in (2, 3)]
    assert envs_of(line) == "", "all are made"
    said.clear()  # what the probes said
    low.reset(rows[0][0])
    high.reset(rows[1][0])
    assert said == ["envs 4-5"] * 2 + ["envs 6-8"] * 3
    actions = np.zeros(2, np.int64), np.zeros(3, np.int64)
    for first, second in ((0, 1), (1, 0)):
        parts, ranges = (low, high), ("envs 4-5", "envs 6-8")
        parts[first].ahead(actions[first])
        assert envs_of(line) == ranges[first]
        parts[second].ahead(actions[second])
        assert envs_of(line) == "envs 4-8"
        parts[first].step(actions[first], *rows[first])
        assert envs_of(line) == ranges[second]
        parts[second].step(actions[second], *rows[second])
        assert envs_of(line) == ""
    low.close()
    high.close()


def test_the_heartbeat_moves_when_a_thread_starts_its_next_env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threaded_envs, "LONG_S", 0.01)
    line, beats = spare(), list[int]()

    class Slow(SpaceEnv):
        def reset(self, **kwargs: Any) -> Any:
            before, end = int(line[BEAT]), time.monotonic() + 10.0
            while beats and line[BEAT] == before and time.monotonic() < end:
                time.sleep(0.001)  # until the caller has noticed: for the first it has nothing to compare with
            beats.append(int(line[BEAT]))
            return super().reset(**kwargs)

    envs, spec, _ = threaded(Slow, 6, threads=2, line=line)
    beats[:] = [int(line[BEAT])]
    envs.reset(blank_row(spec, 6))
    assert len(set(beats)) >= 3, beats  # each thread has three envs
    envs.close()


class Homely(SpaceEnv):
    """Remembers which threads it met."""

    def __init__(self) -> None:
        super().__init__(length=2)
        self.met = {threading.get_ident()}

    def step(self, action: Any) -> Any:
        self.met.add(threading.get_ident())
        return super().step(action)

    def reset(self, **kwargs: Any) -> Any:
        self.met.add(threading.get_ident())
        return super().reset(**kwargs)

    def close(self) -> None:
        self.met.add(threading.get_ident())
        super().close()


def test_each_env_is_made_stepped_and_closed_by_the_same_thread() -> None:
    made: list[Homely] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Homely())
        return made[-1]

    block, spec, _ = threaded(make, threads=3)
    rows, _ = play(block, spec, N, 3)
    block.restore(histories_of(rows, N, spec), blank_row(spec, N))
    block.close()
    met = [env.met for env in made[1:]]  # the first is the probe
    assert all(len(threads) == 1 for threads in met)
    homes = [next(iter(threads)) for threads in met]
    assert len(set(homes)) == 3
    assert threading.get_ident() not in homes, "the caller has other things to do"
    assert [env.closed for env in made[1:]] == [1] * N


def test_threads_are_gone_after_close_which_may_come_twice() -> None:
    block, _, _ = threaded(SpaceEnv)
    assert len(ours()) == N
    block.close()
    block.close()
    assert not ours()

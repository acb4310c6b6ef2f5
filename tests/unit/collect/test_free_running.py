"""Free-running envs collect the same rows as lockstep envs, in any order of threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from tests.unit.envs.toys import SpaceEnv, Walk

from paceline.collect.free_running import STEP_S, FreeRunning, pays
from paceline.collect.rollout import InterleavedCollectors, RolloutCollector
from paceline.envs import thread_per_env as thread_per_env
from paceline.envs.block import BlockSetup, EnvBlock
from paceline.envs.fault import FaultEnv
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.errors import EnvError
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.memory.worker_status import BEAT, STOP, heartbeat_field
from paceline.nets.actor import DeferredValueActor, actor_for
from paceline.nets.policy import build_policy
from paceline.ops.distributions import head_for
from paceline.spec import EnvSpec

SEED, GROUPS, SIZE, STEPS = 5, 3, 2, 7
N = GROUPS * SIZE


@dataclass
class Bed:
    collector: InterleavedCollectors
    slots: Slots
    arena: Arena
    pace: FreeRunning | None

    def rollouts(self, count: int = 3) -> list[dict[str, bytes]]:
        self.collector.reset()
        found = []
        for number in range(count):
            self.collector.collect(number * STEPS)
            found.append({name: array.tobytes() for name, array in self.slots.arrays.items()})
        return found


@contextmanager
def bed(source: Callable[[], gym.Env[Any, Any]], *, together: bool = False) -> Iterator[Bed]:
    recipe = EnvRecipe(source=source, native_vector="never")
    spec = recipe.probe()
    shape = SlotShape(spec, STEPS, GROUPS, SIZE)
    arena = Arena.create([*shape.fields(), Field.of("episode", (N,), np.int64), heartbeat_field(1)])
    slots, line = Slots(arena, shape), arena["heartbeat"][0]
    policy = build_policy("mlp", spec, seed=3)
    actor, head = actor_for(policy, spec, GROUPS, SIZE), head_for(spec.action)
    assert isinstance(actor, DeferredValueActor)
    setup = BlockSetup(
        recipe=recipe,
        spec=spec,
        seed=SEED,
        first_group=0,
        groups=GROUPS,
        group_size=SIZE,
        episode=arena["episode"],
        line=line,
    )
    envs: EnvBlock
    if together:
        envs, pace = SingleEnvs(setup), None
    else:
        envs = ThreadPerEnv(setup)
        pace = FreeRunning(envs, actor, head, shape, line)
    collector = RolloutCollector(
        envs,
        [slots],
        actor,
        actor_for(policy, spec, 1, SIZE),
        head,
        seed=SEED,
        first_group=0,
        groups=GROUPS,
        heartbeat=line,
        free_running=pace,
    )
    try:
        yield Bed(InterleavedCollectors([collector]), slots, arena, pace)
    finally:
        collector.close()
        arena.close()


class Uneven(gym.Wrapper[Any, Any, Any, Any]):
    """Takes its time, each env another."""

    made = 0

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        type(self).made += 1
        self._wait_s = 0.0007 * (type(self).made * 5 % 7)

    def step(self, action: Any) -> Any:
        time.sleep(self._wait_s)
        return super().step(action)


NUMBERS = spaces.Box(-1.0, 1.0, (2,), np.float32)
SOURCES: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "plain": Walk,
    "dict": lambda: Walk(dict_obs=True),
    "masks": lambda: Walk(masked=True),
    "numbers as actions, truncated": lambda: SpaceEnv(action_space=NUMBERS, length=3),
}


@pytest.mark.parametrize("name", SOURCES)
def test_free_running_rows_equal_lockstep_rows_bit_for_bit(name: str) -> None:
    with bed(SOURCES[name], together=True) as it:
        expected = it.rollouts()
        assert name != "numbers as actions, truncated" or it.slots.arrays["final_count"].all()
    with bed(lambda: Uneven(SOURCES[name]())) as it:
        found = it.rollouts()
    for number, (a, b) in enumerate(zip(expected, found, strict=True)):
        for field in a:
            assert a[field] == b[field], f"{field} of rollout {number}"


def test_free_running_envs_do_not_wait_for_each_other() -> None:
    done: list[int] = []
    last_row = threading.Event()

    class Patient(SpaceEnv):
        number = 0

        def step(self, action: Any) -> Any:
            if self.number == 0 and not self.taken:  # in its first step until all others have done their last
                assert last_row.wait(20.0)
            result = super().step(action)
            if len(self.taken) == STEPS and self.number > 0:
                done.append(self.number)
                if len(done) == N - 1:
                    last_row.set()
            return result

    made: list[Patient] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Patient())
        made[-1].number = len(made) - 2  # the first is the probe
        return made[-1]

    with bed(make) as it:
        it.rollouts(1)
    assert sorted(done) == list(range(1, N))


class Fails(SpaceEnv):
    """Env 4 fails in its sixth step at once, env 1 in its third when that has happened."""

    number = 0
    failed = threading.Event()

    def step(self, action: Any) -> Any:
        if self.number == 4 and len(self.taken) == 5:
            self.failed.set()
            raise ValueError("the later one")
        if self.number == 1 and len(self.taken) == 2:
            assert self.failed.wait(20.0)
            raise ValueError("the earlier one")
        return super().step(action)


def test_free_running_raises_the_failure_of_the_lowest_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fails, "failed", threading.Event())
    made: list[Fails] = []

    def make() -> gym.Env[Any, Any]:
        made.append(Fails(length=50))
        made[-1].number = len(made) - 2
        return made[-1]

    with bed(make) as it, pytest.raises(EnvError, match=r"env 1 \(.* raised in step 3 .*the earlier one"):
        it.rollouts(1)


def test_after_a_failure_the_other_threads_stop() -> None:
    made: list[SpaceEnv] = []

    class Slow(SpaceEnv):
        def step(self, action: Any) -> Any:
            if self is made[3]:
                raise ValueError("not today")
            time.sleep(0.03)
            return super().step(action)

    def make() -> gym.Env[Any, Any]:
        made.append(Slow())
        return made[-1]

    with bed(make) as it, pytest.raises(EnvError, match=r"env 2 \(.* raised in step 1 .*not today"):
        it.rollouts(1)
    assert max(len(env.taken) for env in made[1:]) < STEPS


def test_an_env_may_exit_the_process() -> None:
    with bed(lambda: FaultEnv(mode="sys_exit", at_step=4)) as it, pytest.raises(SystemExit):
        it.rollouts(1)


def test_all_threads_stop_when_the_run_is_over() -> None:
    made: list[SpaceEnv] = []
    line: list[Any] = []

    class Slow(SpaceEnv):
        def step(self, action: Any) -> Any:
            if len(self.taken) == 1:
                line[0][STOP] = 1
            return super().step(action)

    def make() -> gym.Env[Any, Any]:
        made.append(Slow())
        return made[-1]

    with bed(make) as it:
        line.append(it.arena["heartbeat"][0])
        it.rollouts(1)
    assert max(len(env.taken) for env in made) < STEPS


def test_all_threads_stop_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_per_env, "LOOK_S", 0.02)
    made: list[SpaceEnv] = []

    class Slow(SpaceEnv):
        def step(self, action: Any) -> Any:
            time.sleep(0.03)
            return super().step(action)

    def make() -> gym.Env[Any, Any]:
        made.append(Slow())
        return made[-1]

    def interrupted() -> None:
        raise KeyboardInterrupt

    with bed(make) as it:
        it.collector.reset()
        assert it.pace is not None
        with monkeypatch.context() as patch:
            patch.setattr(it.pace.envs, "_look", interrupted)
            with pytest.raises(KeyboardInterrupt):
                it.collector.collect(0)
        it.pace.envs.each(lambda _i: None)  # returns when all have stopped
        taken = [len(env.taken) for env in made[1:]]
        assert max(taken) < STEPS


def test_long_rollout_moves_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_per_env, "LOOK_S", 0.01)
    beats: list[int] = []
    line: list[Any] = []

    class Slow(SpaceEnv):
        def step(self, action: Any) -> Any:
            time.sleep(0.05)
            beats.append(int(line[0][BEAT]))
            return super().step(action)

    with bed(lambda: Slow()) as it:
        line.append(it.arena["heartbeat"][0])
        it.rollouts(1)
    assert len(set(beats)) > 2, "not only when it is complete"


def test_free_running_pays_if_thread_work_fits_into_one_wait() -> None:
    spec = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(3))
    small, large = (
        actor_for(build_policy("mlp", spec, hidden_sizes=sizes), spec, 1, 8) for sizes in ((8, 8), (2048, 2048))
    )
    assert isinstance(small, DeferredValueActor)
    assert isinstance(large, DeferredValueActor)
    assert pays(small, spec, 8, 10.0)
    assert not pays(small, spec, 8, 0.0), "a wait of 0 means unknown"
    assert not pays(small, spec, 100, 99 * STEP_S)
    assert not pays(large, spec, 64, 65 * STEP_S), "acting for one env costs as much as for its group"

"""`ParallelVectorEnv` returns what Gymnasium's `SyncVectorEnv` returns, inline and in workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import error, spaces
from gymnasium.utils import env_checker, performance
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from tests.simulator import Simulator
from tests.unit.vector.toys import SPACES, Gate, SampleEnv, notifications

from paceline import ParallelVectorEnv, make_vec
from paceline.runtime.doorbell import BUFFER_BYTES

MODES = list(AutoresetMode)
RICH = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (6, 6, 3), np.uint8),
        "pair": spaces.Tuple((spaces.Discrete(5), spaces.MultiBinary(3))),
        "word": spaces.Text(6),
    }
)


@contextmanager
def both(
    make: Callable[[], gym.Env[Any, Any]],
    n: int,
    workers: int,
    mode: AutoresetMode = AutoresetMode.NEXT_STEP,
    **more: Any,
) -> Iterator[tuple[Any, ParallelVectorEnv]]:
    reference = SyncVectorEnv([make] * n, autoreset_mode=mode)
    vec = make_vec(make, n, workers, autoreset_mode=mode, **{"env_threads": 1, **more})
    try:
        yield reference, vec
    finally:
        vec.close()
        reference.close()


def same(one: Any, other: Any) -> bool:
    return env_checker.data_equivalence(one, other, exact=True)


def walk_together(reference: Any, vec: ParallelVectorEnv, steps: int) -> None:
    """Reset both, take the same random actions, and compare everything."""
    assert vec.observation_space == reference.observation_space
    assert vec.action_space == reference.action_space
    assert vec.metadata == reference.metadata
    options = {"start": 3}
    assert same(vec.reset(seed=3, options=dict(options)), reference.reset(seed=3, options=dict(options)))
    reference.action_space.seed(5)
    disabled = vec.autoreset_mode is AutoresetMode.DISABLED
    for number in range(steps):
        actions = reference.action_space.sample()
        ours, theirs = vec.step(actions), reference.step(actions)
        assert same(ours, theirs), f"step {number}:\n{ours}\n{theirs}"
        ended = theirs[2] | theirs[3]
        if disabled and ended.any():
            seeds = [number + i if i % 2 else None for i in range(vec.num_envs)]
            again = [each.reset(seed=seeds, options={"reset_mask": ended}) for each in (vec, reference)]
            assert same(*again)


@given(obs=SPACES, action=SPACES)
@settings(max_examples=25)
@pytest.mark.parametrize("mode", MODES)
def test_inline_results_equal_those_of_sync_vector_env(mode: AutoresetMode, obs: Any, action: Any) -> None:
    with both(partial(SampleEnv, obs, action), 3, 0, mode) as (reference, vec):
        walk_together(reference, vec, 8)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("obs", "action"), [(RICH, RICH), (None, spaces.Box(-1, 1, (2,), np.float32))])
def test_worker_results_equal_those_of_sync_vector_env(mode: AutoresetMode, obs: Any, action: Any) -> None:
    with both(partial(SampleEnv, obs, action), 5, 2, mode) as (reference, vec):
        walk_together(reference, vec, 30)
        assert same(vec.reset(seed=[7, None, 8, None, 9])[0], reference.reset(seed=[7, None, 8, None, 9])[0])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_threaded_results_equal_those_of_sync_vector_env(workers: int, mode: AutoresetMode) -> None:
    with both(SampleEnv, 6, workers, mode, env_threads=3) as (reference, vec):
        walk_together(reference, vec, 20)


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_step_and_call_only_the_selected_envs(workers: int) -> None:
    with both(SampleEnv, 6, workers, env_threads=3) as (reference, vec):
        vec.reset(seed=3)
        actions = reference.action_space.sample()
        for number in range(20):
            if number % 3 == 0:
                vec.step(actions)
            some = [number % 6, (number + 3) % 6]
            vec.send(actions[some], some)
            assert sorted(vec.recv(2)[-1]) == sorted(some)
            assert len(vec.call("get_wrapper_attr", "spec")) == 6


class Growing(SampleEnv):
    """Returns the same variable-size array in every step and overwrites it."""

    def __init__(self) -> None:
        super().__init__(spaces.Sequence(spaces.Box(-1.0, 1e9, (), np.float32), stack=True))
        self.seen = np.zeros(3, np.float32)

    def _look(self) -> Any:
        self.seen += 1.0
        return self.seen


@pytest.mark.parametrize("workers", [0, 2])
def test_variable_size_observations_are_copies(workers: int) -> None:
    with both(Growing, 2, workers) as (reference, vec):
        first = vec.reset(seed=1)[0]
        assert same(first, reference.reset(seed=1)[0])
        kept = deepcopy(first)
        vec.step(reference.action_space.sample())
        assert same(first, kept)


def test_a_real_env_with_its_wrappers() -> None:
    with both(partial(gym.make, "CartPole-v1"), 4, 2) as (reference, vec):
        walk_together(reference, vec, 60)
        wrapped = gym.wrappers.vector.RecordEpisodeStatistics(vec)
        wrapped.reset(seed=1)
        infos = [wrapped.step(np.ones(4, np.int64))[4] for _ in range(15)]
        assert any("episode" in info for info in infos)


@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_own_checks(mode: AutoresetMode) -> None:
    vec = make_vec("CartPole-v1", 1, 1, autoreset_mode=mode)
    checked: Any = vec
    env_checker.check_returned_data_not_reused(checked)
    env_checker.check_reset_options(checked)
    assert performance.benchmark_vector_step(vec, target_duration=0, seed=1) > 0
    vec.close()


def test_one_wake_up_per_worker_and_step() -> None:
    vec = make_vec(SampleEnv, 7, 3)
    vec.reset(seed=0)
    before = notifications(vec._channel)
    for _ in range(20):
        vec.step(vec.action_space.sample())
    assert [now - then for now, then in zip(notifications(vec._channel), before, strict=True)] == [20, 20, 20]
    vec.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_copies_and_views(workers: int) -> None:
    for copy in (True, False):
        vec = make_vec(SampleEnv, 4, workers, copy=copy)
        first, _ = vec.reset(seed=0)
        kept = first.copy()
        second, *_ = vec.step(vec.action_space.sample())
        assert np.array_equal(first, kept) == copy
        assert np.shares_memory(first, second) != copy
        vec.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_final_observation_is_kept_if_the_env_reuses_its_array(workers: int) -> None:
    vec = make_vec(partial(SampleEnv, reuse=True), 1, workers, autoreset_mode=AutoresetMode.SAME_STEP)
    reference = SampleEnv()
    reference.reset(seed=0)
    vec.reset(seed=0)
    infos: dict[str, Any] = {}
    while "final_obs" not in infos:
        last = reference.step(0)[0]
        infos = vec.step([0])[4]
    assert np.array_equal(infos["final_obs"][0], last)
    vec.close()


def test_first_ready_batches(tmp_path: Path) -> None:
    gate = tmp_path / "open"
    vec = make_vec(partial(Gate, str(gate), seed=0), 4, 2)  # env 0 waits, and so does its neighbour 1
    vec.async_reset(seed=0)
    assert vec.recv(4)[5].tolist() == [0, 1, 2, 3]
    vec.send(np.array([1, 0, 1]), [3, 0, 2])
    obs, reward, terminated, truncated, infos, ids = vec.recv(2)
    assert ids.tolist() == [2, 3]
    assert reward.tolist() == [1.0, 1.0]
    assert obs.tolist() == [[1.0], [1.0]]
    assert not terminated.any()
    assert not truncated.any()
    assert infos["steps"].tolist() == [1, 1]
    vec.send(np.array([1]), [1])  # its worker is busy: later
    vec.send(np.array([0, 1]), [2, 3])
    assert vec.recv(2)[5].tolist() == [2, 3]
    gate.touch()
    assert vec.recv(2)[5].tolist() == [0, 1]
    vec.close()


def test_calls_attributes_and_rendering() -> None:
    for workers in (0, 2):
        vec = make_vec(SampleEnv, 3, workers, env_kwargs={"render_mode": "ansi"})
        vec.reset(seed=4)
        assert vec.render_mode == "ansi"
        assert vec.call("twice", 4, and_more=1) == (9, 9, 9)
        assert vec.get_attr("elapsed") == (0, 0, 0)
        vec.set_attr("label", ["x", "y", "z"])
        assert vec.get_attr("label") == ("x", "y", "z")
        vec.set_attr("label", "all")
        assert vec.get_attr("label") == ("all",) * 3
        assert all(text.startswith("0 of") for text in vec.render())
        assert vec.np_random_seed == (4, 5, 6)
        assert [type(generator) for generator in vec.np_random] == [np.random.Generator] * 3
        with pytest.raises(KeyError, match="nothing doing"):
            vec.call("whine")
        with pytest.raises(AttributeError):
            vec.get_attr("no_such_thing")
        with pytest.raises(ValueError, match="Use `step`"):
            vec.call("step", 0)
        with pytest.raises(ValueError, match="one value per env"):
            vec.set_attr("label", [1, 2])
        vec.step(vec.action_space.sample())  # none of this did it any harm
        assert vec.get_attr("elapsed") == (1, 1, 1)
        vec.close()


def test_infos_larger_than_their_box(monkeypatch: pytest.MonkeyPatch) -> None:
    class Talker(SampleEnv):
        def step(self, action: Any) -> Any:
            obs, reward, *_ = super().step(action)
            return obs, reward, False, False, {"much": np.full(BUFFER_BYTES, self.elapsed, np.uint8)}

    vec = make_vec(Talker, 4, 2)
    vec.reset(seed=0)
    for number in (1, 2):
        infos = vec.step(vec.action_space.sample())[4]
        assert infos["much"].shape == (4, BUFFER_BYTES)
        assert (infos["much"] == number).all()
    vec.close()


def test_envs_by_list_and_by_class_of_the_script() -> None:
    vec = make_vec([partial(SampleEnv, render_mode=f"m{i}") for i in range(3)], num_workers=2)
    assert vec.get_attr("render_mode") == ("m0", "m1", "m2")
    vec.close()
    vec.close()
    count = [0]  # a closure's own state goes along
    vec = make_vec(lambda: SampleEnv(render_mode=f"c{count[0]}"), 2, 1)
    assert vec.get_attr("render_mode") == ("c0", "c0")
    vec.close()


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


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("workers", [0, 2])
def test_extras_equal_the_state_of_every_env(mode: AutoresetMode, workers: int) -> None:
    reference: Any = SyncVectorEnv([Simulator] * 5, autoreset_mode=mode)
    envs: Any = make_vec(Simulator, 5, workers, autoreset_mode=mode)
    try:
        for one in (reference, envs):
            one.reset(seed=3)
        woken = sum(notifications(envs._channel))
        actions = np.random.default_rng(0).integers(0, 3, (30, 5))
        finals = 0
        for action in actions:
            *_, terminated, truncated, infos = envs.step(action)
            expected = reference.step(action)[-1]
            assert set(infos) == set(expected), "what was read is not in the infos"
            shown = envs.extras()
            assert np.array_equal(shown["true_state"], np.stack([env.unwrapped.true_state() for env in reference.envs]))
            assert np.array_equal(shown["seen"], shown["true_state"][:, 0])
            if "final_info" in infos:
                ended = np.flatnonzero(terminated | truncated)
                finals += len(ended)
                assert (infos["final_info"]["at_the_end"][ended] == shown["at_the_end"][ended]).all()
            if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
                for one in (reference, envs):
                    one.reset(options={"reset_mask": terminated | truncated})
                woken += max(1, workers)  # at most: a worker without an ended env is left alone
        assert (finals > 0) == (mode is AutoresetMode.SAME_STEP)
        assert sum(notifications(envs._channel)) <= woken + 30 * max(1, workers)
    finally:
        envs.close()

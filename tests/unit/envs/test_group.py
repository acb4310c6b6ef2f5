"""`SingleEnvs`: seeds, final observations, masks, errors and restoring episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray
from tests.unit.envs.toys import ReusingEnv, SpaceEnv, advance, blank_row, play, single

from paceline.envs.group import SingleEnvs
from paceline.envs.seeding import episode_seed
from paceline.errors import ConfigError, EnvError

FAULT = "paceline.envs.fault:FaultEnv"


def inner(block: SingleEnvs) -> list[Any]:
    return [env.unwrapped for env in block.envs]


def test_resets_are_keyed_by_seed_env_and_episode() -> None:
    block, spec, episode = single(lambda: SpaceEnv(length=2), n=3, seed=11, first_env=40)
    play(block, spec, 3, 5)
    for i, env in enumerate(inner(block)):
        assert env.seeds == [episode_seed(11, 40 + i, e) for e in range(3)]
    assert episode.tolist() == [2, 2, 2]


def test_results_of_an_env_do_not_depend_on_its_block() -> None:
    def act(t: int, envs: range) -> NDArray[Any]:
        return np.array([(t * 7 + e) % 2 for e in envs])

    together, spec, _ = single("CartPole-v1", n=6)
    rows, _ = play(together, spec, 6, 60, lambda t: act(t, range(6)))
    thread_per_env, _, _ = single("CartPole-v1", n=2, first_env=3)
    part, _ = play(thread_per_env, spec, 2, 60, lambda t: act(t, range(3, 5)))
    for whole, half in zip(rows[:-1], part[:-1], strict=True):
        assert whole.obs["obs"][3:5].tobytes() == half.obs["obs"].tobytes()
        assert whole.reward[3:5].tolist() == half.reward.tolist()
        assert whole.terminated[3:5].tolist() == half.terminated.tolist()
    assert any(row.terminated.any() for row in rows[:-1])


def test_a_truncated_episode_returns_its_final_observation() -> None:
    block, spec, _ = single(lambda: SpaceEnv(length=3), n=2)
    rows, finals = play(block, spec, 2, 4)
    assert [len(f) for f in finals] == [0, 0, 2, 0]
    for i, env in enumerate(inner(block)):
        index, last = finals[2][i]
        assert index == i
        assert np.array_equal(last["obs"], env.shown[3])  # reset, then three steps
        assert np.array_equal(rows[3].obs["obs"][i], env.shown[4])  # the next episode's first
        assert not np.array_equal(last["obs"], rows[3].obs["obs"][i])
    assert [r.truncated.tolist() for r in rows[:-1]] == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert not any(r.terminated.any() for r in rows[:-1])
    assert all(r.valid.all() for r in rows[:-1])
    assert [r.reward.tolist() for r in rows[:-1]] == [[1.0] * 2, [2.0] * 2, [3.0] * 2, [1.0] * 2]


def test_a_terminated_episode_returns_no_final_observation() -> None:
    block, spec, episode = single(lambda: SpaceEnv(length=3, terminates=True), n=2)
    rows, finals = play(block, spec, 2, 4)
    assert not any(finals)
    assert rows[2].terminated.all()
    assert not rows[2].truncated.any()
    assert episode.tolist() == [1, 1]


def test_terminated_and_truncated_at_once_is_a_termination() -> None:
    class Both(SpaceEnv):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:2], True, True, {})

    block, spec, _ = single(Both, n=1)
    rows, finals = play(block, spec, 1, 1)
    assert not any(finals)
    assert rows[0].terminated.all()
    assert rows[0].truncated.all()


def test_an_env_that_reuses_its_array_spoils_nothing() -> None:
    block, spec, _ = single(lambda: ReusingEnv(length=3), n=1)
    rows, finals = play(block, spec, 1, 5)
    # One count per look: reset 1, steps 2 3 4 (the last real one), reset 5, steps 6 7.
    assert [float(r.obs["obs"][0, 0]) for r in rows] == [1, 2, 3, 5, 6, 7]
    assert finals[2][0][1]["obs"].tolist() == [4, 4, 4]


OBS_SPACES: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "float64": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "image": spaces.Box(0, 255, (5, 4, 3), np.uint8),
    "scalar": spaces.Box(-1.0, 1.0, (), np.float32),
    "discrete": spaces.Discrete(6),
    "discrete_start": spaces.Discrete(6, start=3),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "multi_binary": spaces.MultiBinary(5),
    "dict": spaces.Dict(
        {
            "pixels": spaces.Box(0, 255, (4, 4, 1), np.uint8),
            "body": spaces.Dict({"pos": spaces.Box(-1.0, 1.0, (2,), np.float32), "gear": spaces.Discrete(4)}),
        }
    ),
}


@pytest.mark.parametrize("name", OBS_SPACES)
def test_observations_of_every_space_are_stored_unchanged(name: str) -> None:
    space = OBS_SPACES[name]
    block, spec, _ = single(lambda: SpaceEnv(space, length=3), n=1)
    rows, finals = play(block, spec, 1, 4)
    (env,) = inner(block)
    shown = [spec.split(obs) for obs in env.shown]
    last = shown.pop(3)
    for row, leaves in zip(rows, shown, strict=True):
        for leaf in spec.obs:
            assert row.obs[leaf.name].dtype == leaf.dtype
            assert np.array_equal(row.obs[leaf.name][0], np.asarray(leaves[leaf.name]).astype(leaf.dtype))
    for leaf in spec.obs:
        got = finals[2][0][1][leaf.name]
        assert got.dtype == leaf.dtype
        assert np.array_equal(got, np.asarray(last[leaf.name]).astype(leaf.dtype))


ACTIONS: dict[str, tuple[spaces.Space[Any], Any, Any]] = {
    "discrete": (spaces.Discrete(4), 3, 3),
    "discrete_start": (spaces.Discrete(4, start=-1), 3, 2),
    "multi_discrete": (spaces.MultiDiscrete([3, 4]), [2, 3], [2, 3]),
    "multi_binary": (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
    "box": (spaces.Box(-1.0, 0.5, (2,), np.float32), [-7.0, 7.0], [-1.0, 0.5]),
    "box64": (spaces.Box(-0.1, 0.1, (1,), np.float64), [7.0], [0.1]),
    "box_open": (spaces.Box(-np.inf, np.inf, (2,), np.float32), [-7.0, 7.0], [-7.0, 7.0]),
    "box_matrix": (spaces.Box(0.0, 1.0, (2, 2), np.float32), [[0.5, 2.0], [-1.0, 1.0]], [[0.5, 1.0], [0.0, 1.0]]),
    "box_scalar": (spaces.Box(-1.0, 1.0, (), np.float32), 3.0, 1.0),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_of_every_space_arrive_in_the_spaces_own_form(name: str) -> None:
    space, stored, expected = ACTIONS[name]
    block, spec, _ = single(lambda: SpaceEnv(action_space=space, length=9), n=2)
    rows, _ = play(block, spec, 2, 1, lambda t: np.array([stored] * 2, spec.action.dtype))
    for env in inner(block):
        (taken,) = env.taken
        assert space.contains(taken), f"{taken!r} of {type(taken)}"
        assert np.array_equal(taken, expected)
    assert np.array_equal(rows[0].action, np.array([stored] * 2, spec.action.dtype)), "the stored action was changed"


def test_an_env_may_keep_and_change_its_action() -> None:
    class Rude(SpaceEnv):
        def step(self, action: Any) -> Any:
            result = super().step(action)
            action *= 0
            return result

    space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    block, spec, _ = single(lambda: Rude(action_space=space), n=2)
    rows, _ = play(block, spec, 2, 3, lambda t: np.full((2, 2), 0.25 * (t + 1), np.float32))
    assert [float(r.action[0, 0]) for r in rows[:3]] == [0.25, 0.5, 0.75]


class MaskedEnv(SpaceEnv):
    """Allows one action after another; with none at all at the end of an episode."""

    def __init__(self, action_space: spaces.Space[Any], as_tuple: bool = False, empty_at: int = -1) -> None:
        super().__init__(action_space=action_space, length=3)
        self.as_tuple, self.empty_at = as_tuple, empty_at

    def info(self) -> dict[str, Any]:
        sizes = [3, 2] if isinstance(self.action_space, spaces.MultiDiscrete) else [3]
        parts = tuple(np.arange(size) == self.elapsed % size for size in sizes)
        if self.elapsed in (self.empty_at, self.length):
            parts = (*parts[:-1], np.zeros(sizes[-1], bool))
        return {"action_mask": parts if self.as_tuple else np.concatenate(parts).astype(np.int8)}


@pytest.mark.parametrize("as_tuple", [False, True])
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2])])
def test_masks_from_infos(space: spaces.Space[Any], as_tuple: bool) -> None:
    block, spec, _ = single(lambda: MaskedEnv(space, as_tuple), n=2)
    assert spec.masked
    rows, _ = play(block, spec, 2, 4)
    for elapsed, row in zip([0, 1, 2, 0, 1], rows, strict=True):
        assert row.mask is not None
        expected = [elapsed % 3 == k for k in range(3)]
        if isinstance(space, spaces.MultiDiscrete):
            expected += [elapsed % 2 == k for k in range(2)]
        assert row.mask.tolist() == [expected] * 2


def test_masks_from_an_observation_key() -> None:
    class InObs(SpaceEnv):
        def look(self) -> Any:
            return {"x": np.full(2, self.elapsed, np.float32), "action_mask": np.arange(2) == self.elapsed % 2}

    space = spaces.Dict({"x": spaces.Box(-9, 9, (2,), np.float32), "action_mask": spaces.MultiBinary(2)})
    block, spec, _ = single(lambda: InObs(space, length=9), n=2)
    assert [leaf.name for leaf in spec.obs] == ["x"]
    rows, _ = play(block, spec, 2, 2)
    assert [row.mask.tolist() for row in rows if row.mask is not None] == [
        [[True, False]] * 2,
        [[False, True]] * 2,
        [[True, False]] * 2,
    ]
    assert [float(row.obs["x"][1, 0]) for row in rows] == [0, 1, 2]


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2])])
def test_a_mask_without_a_legal_action_is_refused_late_too(space: spaces.Space[Any]) -> None:
    block, spec, _ = single(lambda: MaskedEnv(space, empty_at=4), n=2, first_env=6)
    for env in inner(block)[1:]:
        env.length = 9  # Only env 7 gets as far as step 4.
    rows = [blank_row(spec, 2) for _ in range(5)]
    block.reset(rows[0])
    with pytest.raises(EnvError, match=r"env 7: action_mask allows no action"):
        advance(block, rows)


def test_a_mask_of_the_wrong_size_or_absent_is_refused() -> None:
    class Wrong(SpaceEnv):
        def info(self) -> dict[str, Any]:
            return {"action_mask": np.ones(3 if self.elapsed else 2)}

    class Forgets(SpaceEnv):
        def info(self) -> dict[str, Any]:
            return {"action_mask": np.ones(2)} if self.elapsed != 1 else {}

    for source, text in ((Wrong, "2 entries"), (Forgets, "has no 'action_mask'")):
        block, spec, _ = single(source, n=1)
        with pytest.raises(EnvError, match=f"env 0 .*{text}"):
            play(block, spec, 1, 1)


def test_a_mask_that_is_missing_later_raises_and_names_the_env() -> None:
    class Forgets(SpaceEnv):
        def info(self) -> dict[str, Any]:
            return {"action_mask": np.ones(2)} if self.elapsed < 4 else {}

    block, spec, _ = single(lambda: Forgets(length=9), n=1)
    with pytest.raises(EnvError, match=r"env 0 .*step 4.*action_mask"):
        play(block, spec, 1, 5)


def test_an_error_in_step_names_env_episode_step_and_seed() -> None:
    kwargs = {"mode": "raise", "at_step": 4, "at_episode": 1, "env_index": 6, "run_seed": 7, "episode_length": 10}
    block, spec, _ = single(FAULT, n=3, first_env=5, kwargs=kwargs)
    with pytest.raises(EnvError) as caught:
        play(block, spec, 3, 20, lambda t: np.array([0, 1, 0]))
    text = str(caught.value)
    assert text.startswith("env 6 (seed 7, episode 1) raised in step 4 with action 1: RuntimeError: fault in step")
    assert f"reset(seed={episode_seed(7, 6, 1)})" in text
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_env_that_raises_in_reset_says_reset() -> None:
    block, spec, _ = single(FAULT, n=2, kwargs={"mode": "raise_reset", "at_episode": 1, "episode_length": 3})
    with pytest.raises(EnvError, match=r"env 0 \(seed 7, episode 1\) raised in reset: RuntimeError: fault in reset"):
        play(block, spec, 2, 5)


def test_a_constructor_that_raises_names_the_env_and_closes_the_others() -> None:
    made: list[SpaceEnv] = []

    def make() -> SpaceEnv:
        if len(made) == 3:  # the probe's, then envs 10 and 11
            raise RuntimeError("out of licences")
        made.append(SpaceEnv())
        return made[-1]

    with pytest.raises(EnvError, match=r"env 12 \(seed 7\) raised in its constructor: RuntimeError: out of licences"):
        single(make, n=4, first_env=10)
    assert [env.closed for env in made] == [1, 1, 1]


def test_an_exception_whose_text_fails_is_still_reported() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    class Mute(SpaceEnv):
        def step(self, action: Any) -> Any:
            raise MuteError

    block, spec, _ = single(Mute, n=1)
    with pytest.raises(EnvError, match=r"env 0 .*MuteError"):
        play(block, spec, 1, 1)


def test_sys_exit_is_not_swallowed() -> None:
    block, spec, _ = single(FAULT, n=1, kwargs={"mode": "sys_exit"})
    with pytest.raises(SystemExit):
        play(block, spec, 1, 1)


@pytest.mark.parametrize(
    ("mode", "at_step"), [("wrong_shape", 1), ("wrong_shape", 2), ("wrong_shape", 7), ("wrong_dtype", 1)]
)
def test_observations_that_break_the_space_name_env_and_leaf(mode: str, at_step: int) -> None:
    block, spec, _ = single(FAULT, n=2, kwargs={"mode": mode, "at_step": at_step})
    with pytest.raises(EnvError, match="env 0 ") as caught:
        play(block, spec, 2, 8)
    text = str(caught.value)
    assert ("'obs'" in text and "float32 of shape (4,)" in text) if at_step <= 2 else "step 7" in text


@pytest.mark.parametrize(("at_step", "text"), [(1, "no usable 'b'"), (4, "returned values that cannot be stored")])
def test_a_dict_observation_without_a_key_is_named(at_step: int, text: str) -> None:
    class Lacks(SpaceEnv):
        def look(self) -> Any:
            obs = dict(super().look())
            if self.elapsed == at_step:
                del obs["b"]
            return obs

    box = spaces.Box(-1, 1, (2,), np.float32)
    block, spec, _ = single(lambda: Lacks(spaces.Dict({"a": box, "b": box})), n=1)
    with pytest.raises(EnvError, match=text):
        play(block, spec, 1, at_step)


def test_the_old_step_api_is_recognised() -> None:
    class Old(SpaceEnv):
        def step(self, action: Any) -> Any:
            return self.look(), 1.0, False, {}

    block, spec, _ = single(Old, n=1)
    with pytest.raises(EnvError, match=r"env 0 .*returned.*\(obs, reward, terminated, truncated, info\)"):
        play(block, spec, 1, 1)


@pytest.mark.parametrize("reward", [np.float64(0.5), np.array(0.5), np.array([0.5]), 0.5])
def test_rewards_of_any_numeric_form(reward: Any) -> None:
    class Pays(SpaceEnv):
        def step(self, action: Any) -> Any:
            obs, _, terminated, truncated, info = super().step(action)
            return obs, reward, terminated, truncated, info

    block, spec, _ = single(Pays, n=3)
    rows, _ = play(block, spec, 3, 2)
    assert rows[1].reward.tolist() == [0.5] * 3


def test_a_reward_that_is_no_number_names_the_env() -> None:
    class Pays(SpaceEnv):
        def step(self, action: Any) -> Any:
            obs, _, terminated, truncated, info = super().step(action)
            return obs, None, terminated, truncated, info

    block, spec, _ = single(Pays, n=2)
    with pytest.raises(EnvError, match=r"env 0 .*reward must be a single number \(got None\)"):
        play(block, spec, 2, 1)


def test_a_function_that_returns_the_same_env_twice_raises() -> None:
    env = SpaceEnv()
    with pytest.raises(ConfigError, match="same env twice"):
        single(lambda: env, n=2)


def test_envs_with_different_spaces_are_refused() -> None:
    sizes = iter([3, 3, 4])
    with pytest.raises(EnvError, match=r"env 1: its spaces .*\(4,\)"):
        single(lambda: SpaceEnv(spaces.Box(-1, 1, (next(sizes),), np.float32)), n=2)


def test_close_may_be_called_twice_and_closes_the_others_if_one_raises(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(SpaceEnv):
        def close(self) -> None:
            super().close()
            if self.closed == 1 and self.seeds != [0]:  # not the probe's
                raise OSError("door jammed")

    block, _, _ = single(Stuck, n=3)
    envs = inner(block)
    block.close()
    block.close()
    assert [env.closed for env in envs] == [1, 1, 1]
    assert caplog.text.count("door jammed") == 3
    assert "env 2 raised in close" in caplog.text

"""`VectorEnvs`: all autoreset modes give the same transitions, and those of single envs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.envs.toys import INDEPENDENT, WALK, IndependentWalks, Walk, blank_row, of_groups, play, register

from paceline.envs.block import History
from paceline.envs.make import EnvRecipe
from paceline.envs.native import VectorEnvs
from paceline.envs.seeding import group_seed
from paceline.errors import ConfigError, EnvError
from paceline.spec import EnvSpec

MODES = ["NextStep", "SameStep", "Disabled"]
GROUPS, SIZE = 2, 3
N = GROUPS * SIZE


def vector_block(
    mode: str = "NextStep", *, seed: int = 5, first_group: int = 0, source: str = WALK, **kwargs: Any
) -> tuple[VectorEnvs, EnvSpec, NDArray[np.int64]]:
    env_kwargs = {"mode": mode, **kwargs} if source == WALK else kwargs
    spec = EnvSpec.of(
        Walk(kwargs.get("dict_obs", False)).observation_space, Walk().action_space, masked="masked" in kwargs
    )
    if source != WALK:
        spec = EnvRecipe(source=source, kwargs=env_kwargs).probe()
    recipe = EnvRecipe(source=source, kwargs=env_kwargs, native_vector="always")
    block = VectorEnvs(of_groups(recipe, spec, seed=seed, first_group=first_group, groups=GROUPS, group_size=SIZE))
    return block, spec, block.episode


def transitions(mode: str, steps: int, **kwargs: Any) -> list[list[tuple[Any, ...]]]:
    """Per env: (obs, mask, reward, terminated, truncated, what a bootstrap would look at) of every valid row."""
    block, spec, episode = vector_block(mode, **kwargs)
    rows, finals = play(block, spec, N, steps)
    block.close()
    out: list[list[tuple[Any, ...]]] = [[] for _ in range(N)]
    ends = np.zeros(N, int)
    for t, row in enumerate(rows[:-1]):
        last = dict(finals[t])
        for i in range(N):
            if not row.valid[i]:
                assert row.reward[i] == 0.0
                assert not row.terminated[i]
                assert not row.truncated[i]
                continue
            cut = bool(row.truncated[i] and not row.terminated[i])
            assert (i in last) == (cut and mode != "NextStep")
            follows = last[i] if i in last else {name: leaf[i] for name, leaf in rows[t + 1].obs.items()}
            seen = {name: leaf[i].tolist() for name, leaf in row.obs.items()}
            then = None if row.terminated[i] else {name: leaf.tolist() for name, leaf in follows.items()}
            mask = None if row.mask is None else row.mask[i].tolist()
            out[i].append((seen, mask, float(row.reward[i]), bool(row.terminated[i]), bool(row.truncated[i]), then))
            ends[i] += row.terminated[i] or row.truncated[i]
    assert episode.tolist() == ends.tolist()
    return out


@pytest.mark.parametrize("kwargs", [{}, {"dict_obs": True}, {"masked": True}, {"dict_obs": True, "masked": True}])
@pytest.mark.parametrize(("mode", "stacked"), [("SameStep", False), ("SameStep", True), ("Disabled", False)])
def test_all_autoreset_modes_give_the_same_valid_transitions(mode: str, stacked: bool, kwargs: dict[str, Any]) -> None:
    reference = transitions("NextStep", 60, **kwargs)
    other = transitions(mode, 60, stacked=stacked, **kwargs)
    for mine, yours in zip(reference, other, strict=True):
        assert len(mine) > 30
        assert len(yours) == 60
        assert any(step[3] for step in mine)
        assert any(step[4] for step in mine)
        assert mine == yours[: len(mine)]


@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_those_of_single_envs_with_the_same_seeds(mode: str) -> None:
    lived = transitions(mode, 30)
    for g in range(GROUPS):
        for j in range(SIZE):
            env = Walk()
            obs, _ = env.reset(seed=group_seed(5, g) + j)  # Gymnasium gives seed + j to the j-th env.
            for seen, _, reward, terminated, truncated, then in lived[g * SIZE + j]:
                assert seen["obs"] == obs.tolist()
                obs, expected, *flags, _ = env.step(0)
                assert (reward, terminated, truncated) == (np.float32(expected), *flags)
                assert then is None or then["obs"] == obs.tolist()
                if any(flags):
                    obs, _ = env.reset()


def test_a_block_depends_on_its_groups_alone() -> None:
    whole, spec, _ = vector_block("SameStep")
    rows, _ = play(whole, spec, N, 20)
    recipe = EnvRecipe(source=WALK, kwargs={"mode": "SameStep"}, native_vector="always")
    alone = VectorEnvs(of_groups(recipe, spec, seed=5, first_group=1, group_size=SIZE))
    part, _ = play(alone, spec, SIZE, 20)
    for a, b in zip(rows, part, strict=True):
        assert a.obs["obs"][SIZE:].tobytes() == b.obs["obs"].tobytes()


def own_streams_block(mode: str, *, vector_per_group: bool, groups: int = 3, **kwargs: Any) -> tuple[VectorEnvs, Any]:
    recipe = EnvRecipe(
        source=INDEPENDENT, kwargs={"mode": mode, **kwargs}, native_vector="always", vector_per_group=vector_per_group
    )
    spec = EnvSpec.of(Walk().observation_space, Walk().action_space, masked="masked" in kwargs)
    return VectorEnvs(of_groups(recipe, spec, seed=5, first_group=2, groups=groups, group_size=SIZE)), spec


@pytest.mark.parametrize("kwargs", [{}, {"masked": True}])
@pytest.mark.parametrize("mode", MODES)
def test_one_vector_env_for_all_groups_gives_the_rows_of_one_for_each(mode: str, kwargs: dict[str, Any]) -> None:
    together, spec = own_streams_block(mode, vector_per_group=False, **kwargs)
    apart, _ = own_streams_block(mode, vector_per_group=True, **kwargs)
    assert [len(block._envs) for block in (together, apart)] == [1, 3]
    for _ in range(2):  # the second time, the groups begin with seeds of different epochs
        rows, finals = play(together, spec, 3 * SIZE, 60)
        others, others_finals = play(apart, spec, 3 * SIZE, 60)
        for row, other in zip(rows[:-1], others[:-1], strict=True):
            assert row.valid.tobytes() == other.valid.tobytes()
            assert row.obs["obs"].tobytes() == other.obs["obs"].tobytes()
            assert row.mask is other.mask is None or np.array_equal(row.mask, other.mask)  # type: ignore[arg-type]
            for name in ("reward", "terminated", "truncated"):
                assert getattr(row, name).tobytes() == getattr(other, name).tobytes()
        for one, two in zip(finals, others_finals, strict=True):
            assert [i for i, _ in one] == [i for i, _ in two]
            assert all(np.array_equal(a["obs"], b["obs"]) for (_, a), (_, b) in zip(one, two, strict=True))
        assert together.episode.tolist() == apart.episode.tolist()
    assert len({int(together.episode[i : i + SIZE].max()) for i in range(0, 3 * SIZE, SIZE)}) > 1


def test_an_error_names_all_groups_of_a_vector_env(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("gears")

    block, spec = own_streams_block("SameStep", vector_per_group=False, groups=2)
    monkeypatch.setattr(IndependentWalks, "step", broken)
    seeds = [group_seed(5, group) + i for group in (2, 3) for i in range(SIZE)]
    with pytest.raises(EnvError, match=r"vector env of groups 2-3 \(envs 6-11, seed 5\) raised") as raised:
        play(block, spec, 2 * SIZE, 1)
    assert f"reset(seed={seeds})" in str(raised.value)


def test_a_pending_reset_continues_in_the_next_rollout() -> None:
    block, spec, _ = vector_block("NextStep")
    rows, _ = play(block, spec, N, 40)
    for t in range(1, 40):
        before, row = rows[t - 1], rows[t]
        assert np.array_equal(row.valid, ~(before.terminated | before.truncated))
    assert rows[0].valid.all()


def test_cartpoles_own_vector_env() -> None:
    block, spec, episode = vector_block(source="CartPole-v1")
    rows, finals = play(block, spec, N, 120, lambda t: np.full(N, t % 3 == 0, np.int64))
    assert episode.min() >= 1
    assert not any(finals)
    assert np.allclose(rows[0].obs["obs"], 0, atol=0.05)
    for row in rows[:-1]:
        assert np.array_equal(row.reward, row.valid.astype(np.float32))
    assert not all(row.valid.all() for row in rows[:-1])


def test_restore_starts_new_episodes_and_reports_all_envs() -> None:
    block, spec, episode = vector_block("SameStep")
    rows, _ = play(block, spec, N, 10)
    histories = [
        History(episode=int(e), actions=np.zeros(0, np.int64), obs={"obs": rows[-1].obs["obs"][i]}, mask=None)
        for i, e in enumerate(episode)
    ]
    other, _, other_episode = vector_block("SameStep")
    start = blank_row(spec, N)
    assert other.restore(histories, start) == list(range(N))
    assert other_episode.tolist() == (episode + 1).tolist()
    first, _, _ = vector_block("SameStep")
    fresh = blank_row(spec, N)
    first.reset(fresh)
    assert not np.array_equal(start.obs["obs"], fresh.obs["obs"]), "the run's first episodes were lived again"


def test_the_action_space_of_the_batch_is_respected() -> None:
    taken: list[Any] = []

    class Shifted(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Discrete(3, start=10)

        def step(self, action: Any) -> Any:
            taken.append(int(action))
            return super().step(action)

    env_id = register(
        "toys/Shifted-v0",
        entry_point=Shifted,
        vector_entry_point=lambda num_envs: gym.vector.SyncVectorEnv([Shifted] * num_envs),
    )
    block, spec, _ = vector_block(source=env_id)
    play(block, spec, N, 1, lambda t: np.array([0, 1, 2, 2, 1, 0]))
    assert taken == [10, 11, 12, 12, 11, 10]


def broken(where: str) -> str:
    class Breaks(gym.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            if where == "step":
                raise RuntimeError("gears")
            obs, reward, terminated, truncated, infos = super().step(actions)
            if where == "shape":
                obs = obs[:, :1]
            if where == "finals":
                infos.pop("final_obs", None)
            return obs, reward, terminated, truncated, infos

        def reset(self, **kwargs: Any) -> Any:
            if where == "reset":
                raise RuntimeError("gears")
            return super().reset(**kwargs)

    def make(num_envs: int) -> gym.vector.VectorEnv[Any, Any, Any]:
        if where == "constructor":
            raise RuntimeError("gears")
        count = num_envs + (where == "count")
        vector = Breaks([Walk] * count, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
        if where == "mode":
            del vector.metadata["autoreset_mode"]
            vector.metadata["autoreset_mode"] = "whenever"
        return vector

    return register(f"toys/Breaks{where}-v0", entry_point=Walk, vector_entry_point=make)


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        (
            "step",
            EnvError,
            r"group 4 \(envs 12-14, seed 5\) raised in step 1 with actions \[0, 0, 0\]: RuntimeError: gears",
        ),
        ("reset", EnvError, r"group 4 .*raised in reset\(seed=\d+\): RuntimeError: gears"),
        ("constructor", EnvError, r"group 4 .*constructor: RuntimeError: gears"),
        ("shape", EnvError, r"group 4 .*'obs' must be float32 of shape \(3, 2\)"),
        ("finals", EnvError, r"group \d .*final_obs"),
        ("count", EnvError, r"must have 3 envs \(num_envs=4\)"),
        ("mode", ConfigError, r"autoreset_mode.*whenever"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*autoreset_mode.*")
def test_failures_name_the_group(where: str, error: type[Exception], text: str) -> None:
    def attempt() -> None:
        block, spec, _ = vector_block(source=broken(where), first_group=4)
        play(block, spec, N, 20)

    with pytest.raises(error, match=text):
        attempt()


def test_an_empty_mask_raises_only_during_an_episode() -> None:
    class Strict(Walk):
        def look(self) -> Any:
            obs, info = super().look()
            return obs, {"action_mask": info["action_mask"] * 0 if self.left == 1 else info["action_mask"]}

        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            self.left = 4
            return self.look()

    env_id = register(
        "toys/Strict-v0",
        entry_point=lambda: Strict(masked=True),
        vector_entry_point=lambda num_envs: gym.vector.SyncVectorEnv([lambda: Strict(masked=True)] * num_envs),
    )
    block, spec, _ = vector_block(source=env_id, first_group=2)
    assert spec.masked
    with pytest.raises(EnvError, match="env 6: action_mask allows no action"):
        play(block, spec, N, 5)


def test_reward_and_flags_of_a_reset_step_are_ignored() -> None:
    class Untidy(gym.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            resetting = self._autoreset_envs.copy()
            obs, reward, terminated, truncated, infos = super().step(actions)
            return obs, np.where(resetting, 9.0, reward), terminated, truncated | resetting, infos

    env_id = register("toys/Untidy-v0", entry_point=Walk, vector_entry_point=lambda num_envs: Untidy([Walk] * num_envs))
    tidy, spec, _ = vector_block()
    untidy, _, _ = vector_block(source=env_id)
    expected, _ = play(tidy, spec, N, 30)
    rows, _ = play(untidy, spec, N, 30)
    for a, b in zip(expected[:-1], rows[:-1], strict=True):
        assert a.reward.tolist() == b.reward.tolist()
        assert a.truncated.tolist() == b.truncated.tolist()
        assert a.valid.tolist() == b.valid.tolist()


def test_a_second_reset_leaves_nothing_pending() -> None:
    block, spec, _ = vector_block()
    row, after = blank_row(spec, N), blank_row(spec, N)
    block.reset(after)
    for _ in range(50):
        block.step(row.action, row, after)
        if (row.terminated | row.truncated).any():
            break
    block.reset(after)
    block.step(row.action, row, after)
    assert row.valid.all()


def test_close_twice() -> None:
    block, _, _ = vector_block()
    vectors: list[Any] = list(block._envs)
    block.close()
    block.close()
    assert all(vector.closed for vector in vectors)

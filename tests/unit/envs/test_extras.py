"""Extras and reward shaping, in every kind of env block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tests.simulator import EXTRAS, Simulator, Travelled

from paceline.envs.block import EnvBlock, History
from paceline.envs.extras import Extra, named_extras
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.envs.shaping import ShapedEnvs, ShaperRecipe
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.spec import ENV_REWARD, EnvSpec

N, ROWS = 6, 40


@pytest.fixture(params=["single", "threads", "NextStep", "SameStep", "Disabled"])
def make(request: pytest.FixtureRequest) -> Iterator[tuple[Callable[[], EnvBlock], EnvSpec]]:
    """Makes a block of 6 simulators, of one kind."""
    kwargs: dict[str, Any] = {}
    native = request.param not in ("single", "threads")
    if native:
        gym.register(
            "tests/Simulator-v0",
            entry_point="tests.simulator:Simulator",
            vector_entry_point="tests.simulator:VectorSimulator",
        )
        kwargs = {"kwargs": {"autoreset_mode": AutoresetMode(request.param)}, "native_vector": "always"}
    recipe = EnvRecipe(source="tests/Simulator-v0" if native else Simulator, **kwargs)
    spec = EnvRecipe(source=Simulator).probe()

    def block() -> EnvBlock:
        episode = np.zeros(N, np.int64)
        return make_block(
            recipe, spec, seed=3, first_group=0, groups=2, group_size=3, episode=episode,
            threads=3 if request.param == "threads" else 1,
        )  # fmt: skip

    yield block, spec
    gym.registry.pop("tests/Simulator-v0", None)


def shaped(envs: EnvBlock, spec: EnvSpec) -> tuple[ShapedEnvs, EnvSpec]:
    recipe = ShaperRecipe(source=Travelled, kwargs={"weight": 2.0})
    whole = EnvSpec(**{**{f: getattr(spec, f) for f in spec.__slots__}, "shaping": recipe.shaping()})
    return ShapedEnvs(envs, recipe.make(N), whole, N), whole


def actions(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 3, (ROWS, N))


def run(envs: EnvBlock, spec: EnvSpec) -> list[Row]:
    rows = [Row.blank(spec, N) for _ in range(ROWS + 1)]
    envs.reset(rows[0])
    for action, row, after in zip(actions(), rows, rows[1:], strict=False):
        envs.step(action, row, after)
    return rows


def test_extras_in_a_row_belong_to_the_observation_of_that_row(make: Any) -> None:
    block, spec = make
    envs = block()
    rows = run(envs, spec)
    ends = 0
    for row, after in pairwise(rows):
        place, age = after.extras["true_state"].T
        assert (np.sign(place) == after.obs["obs"][:, 0]).all()
        assert (after.extras["seen"] == place).all()
        ended = (row.terminated | row.truncated) & row.valid
        ends += ended.sum()
        went_on = ~ended & row.valid
        assert (age[went_on] == row.extras["true_state"][went_on, 1] + 1).all()
        due = (age % 3 == 0) & went_on
        assert (after.extras["rarely"][due] == age[due]).all()
        stands = (age % 3 != 0) & went_on
        assert (after.extras["rarely"][stands] == row.extras["rarely"][stands]).all()
        length = row.extras["true_state"][:, 1] + 1
        assert (after.extras["at_the_end"][ended] == length[ended]).all()
        assert (after.extras["at_the_end"][went_on] == row.extras["at_the_end"][went_on]).all()
    assert ends > 10
    envs.close()


def test_a_shaper_receives_the_extras_after_the_step_also_at_the_end_of_an_episode(make: Any) -> None:
    block, spec = make
    envs, spec = shaped(block(), spec)
    rows = run(envs, spec)
    ends = 0
    travelled = np.zeros(N)
    for row in rows[:-1]:
        own, distance, patience = (row.reward_parts[name] for name in (ENV_REWARD, "distance", "patience"))
        # The env pays for its place, so that its reward says where the step led.
        led_to = np.abs(8 * own)
        moved = distance / 2
        place = row.extras["true_state"][:, 0]
        valid = row.valid
        possible = np.minimum(np.abs(led_to - place - moved), np.abs(led_to - place + moved))
        mirrored = np.minimum(np.abs(-led_to - place - moved), np.abs(-led_to - place + moved))
        assert (np.minimum(possible, mirrored)[valid] == 0).all()
        travelled += np.where(valid, moved, 0)
        assert np.allclose(patience[valid], travelled[valid] / 10)
        assert (row.reward_parts["travelled"][valid] == travelled[valid]).all()
        assert np.allclose(row.reward, own + distance + patience)
        assert (row.reward[~valid] == 0).all()
        ended = row.terminated | row.truncated | ~valid
        ends += ended.sum()
        travelled[ended] = 0
    assert ends > 10
    envs.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_shaper_is_restored_with_its_envs(threads: int) -> None:
    recipe = EnvRecipe(source=Simulator)
    spec = recipe.probe()

    def block() -> EnvBlock:
        return make_block(
            recipe, spec, seed=3, first_group=0, groups=1, group_size=N, episode=np.zeros(N, np.int64), threads=threads
        )

    envs, spec = shaped(block(), spec)
    rows = run(envs, spec)
    half = ROWS // 2
    begun = [0] * N
    for t, row in enumerate(rows[:half]):
        for i in np.flatnonzero(row.terminated | row.truncated):
            begun[i] = t + 1
    episode = [sum(bool(row.terminated[i] | row.truncated[i]) for row in rows[:half]) for i in range(N)]
    histories = [
        History(
            episode[i],
            actions()[begun[i] : half, i],
            {"obs": rows[half].obs["obs"][i]},
            None,
            tags={"extra/at_the_end": rows[half].extras["at_the_end"][i]},
        )
        for i in range(N)
    ]
    again, _ = shaped(block(), spec)
    now = Row.blank(spec, N)
    assert again.restore(histories, now) == []
    assert all((now.extras[name] == rows[half].extras[name]).all() for name in EXTRAS)
    for t in range(half, ROWS):
        after = Row.blank(spec, N)
        again.step(actions()[t], now, after)
        for name in spec.reward_parts:
            assert (now.reward_parts[name] == rows[t].reward_parts[name]).all(), name
        now = after
    for one in (envs, again):
        one.close()


def test_extras_are_found_through_wrappers() -> None:
    wrapped = gym.wrappers.TimeLimit(Simulator(), 5)
    assert named_extras(wrapped) == EXTRAS
    assert EnvRecipe(source=Simulator, frame_stack=2).probe().extras == EXTRAS
    assert EnvRecipe(source="CartPole-v1").probe().extras == {}


def naming(**extras: Extra) -> type[Simulator]:
    return type("Naming", (Simulator,), {"extras": extras})


def begin_one(env: type[Simulator]) -> None:
    recipe = EnvRecipe(source=env)
    spec = recipe.probe()
    block = make_block(recipe, spec, seed=0, first_group=0, groups=1, group_size=1, episode=np.zeros(1, np.int64))
    block.reset(Row.blank(spec, 1))


@pytest.mark.parametrize(
    ("extra", "error", "words"),
    [
        (
            {"true_state": Extra(shape=(3,), read="true_state")},
            EnvError,
            r"must be float32 of shape \(3,\)",
        ),
        ({"unheard_of": Extra()}, EnvError, "extra 'unheard_of': not in the info dict"),
        ({"x": Extra(read="true_stat")}, ConfigError, "has no method 'true_stat'"),
    ],
)
def test_an_extra_that_cannot_be_read_is_named(extra: dict[str, Extra], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        begin_one(naming(**extra))


@pytest.mark.parametrize(("every", "dtype"), [(0, "float32"), ("week", "float32"), (1, "floaty")])
def test_invalid_extras_raise(every: Any, dtype: str) -> None:
    with pytest.raises(ConfigError, match="extra:"):
        Extra(every=every, dtype=dtype)


class Quiet:
    parts = ("bonus",)

    def __init__(self, n: int) -> None:
        pass

    def begin(self, envs: Any, extras: Any) -> None:
        pass

    def __call__(self, step: Any) -> dict[str, Any]:
        return {}


def test_a_shaper_that_leaves_out_a_part_is_named() -> None:
    recipe = EnvRecipe(source=Simulator)
    spec = recipe.probe()
    spec = EnvSpec(**{**{f: getattr(spec, f) for f in spec.__slots__}, "shaping": ShaperRecipe(source=Quiet).shaping()})
    block = make_block(recipe, spec, seed=0, first_group=0, groups=1, group_size=2, episode=np.zeros(2, np.int64))
    envs = ShapedEnvs(block, Quiet(2), spec, 2)
    rows = Row.blank(spec, 2), Row.blank(spec, 2)
    envs.reset(rows[0])
    with pytest.raises(EnvError, match="shaper Quiet: must return 2 numbers for each of bonus"):
        envs.step(np.zeros(2, np.int64), *rows)


@pytest.mark.parametrize(
    ("source", "words"),
    [("tests.simulator:Travels", "has no callable"), (lambda: None, "must be the number of envs"), (int, "parts")],
)
def test_an_object_without_the_methods_of_a_shaper_raises(source: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ShaperRecipe(source=source).make(1)

"""Reward shaping: what a shaper receives, what it adds, and restoring its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.simulator import EXTRAS, Simulator, Travelled
from tests.unit.envs.simulators import ROWS, N, actions, run
from tests.unit.envs.toys import of_groups

from paceline.envs.block import EnvBlock, History
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.envs.shaping import ShapedEnvs, ShaperRecipe
from paceline.errors import ConfigError, EnvError
from paceline.memory.rows import Row
from paceline.spec import ENV_REWARD, EnvSpec


def shaped(envs: EnvBlock, spec: EnvSpec) -> tuple[ShapedEnvs, EnvSpec]:
    recipe = ShaperRecipe(source=Travelled, kwargs={"weight": 2.0})
    whole = EnvSpec(**{**{f: getattr(spec, f) for f in spec.__slots__}, "shaping": recipe.shaping()})
    return ShapedEnvs(envs, recipe.make(N), whole, N), whole


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
        return make_block(of_groups(recipe, spec, seed=3, group_size=N), threads)

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
    block = make_block(of_groups(recipe, spec, group_size=2))
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

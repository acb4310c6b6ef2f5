"""`SingleEnvs.restore`: replaying an episode puts an env back where it was, or says that it could not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.envs.test_group import MaskedEnv, inner
from tests.unit.envs.toys import SpaceEnv, Walk, advance, blank_row, play, single

from paceline.envs.block import History
from paceline.envs.seeding import episode_seed
from paceline.errors import EnvError

FAULT = "paceline.envs.fault:FaultEnv"


def histories_of(rows: list[Any], n: int, spec: Any) -> list[History]:
    """What a checkpoint keeps, worked out from the rows: each env's actions since its last reset."""
    histories = []
    for i in range(n):
        ends = [t for t, row in enumerate(rows[:-1]) if row.terminated[i] or row.truncated[i]]
        begin = ends[-1] + 1 if ends else 0
        taken = [row.action[i] for row in rows[begin:-1]]
        histories.append(
            History(
                episode=len(ends),
                actions=np.array(taken, spec.action.dtype).reshape(-1, *spec.action.shape),
                obs={name: leaf[i].copy() for name, leaf in rows[-1].obs.items()},
                mask=None if rows[-1].mask is None else rows[-1].mask[i].copy(),
            )
        )
    return histories


RESTORABLE: dict[str, dict[str, Any]] = {
    "cartpole": {"source": "CartPole-v1"},
    "pendulum": {"source": "Pendulum-v1", "kwargs": {"max_episode_steps": 30}},
    "stacked": {"source": "CartPole-v1", "frame_stack": 3},
    "dict": {"source": lambda: Walk(dict_obs=True)},
    "masked": {"source": lambda: MaskedEnv(spaces.Discrete(3))},
    "wrapped": {"source": "Acrobot-v1", "wrappers": ("gymnasium.wrappers:FlattenObservation",)},
}


@settings(deadline=None, max_examples=4)
@given(steps=st.integers(0, 70), seed=st.integers(0, 1000))
@pytest.mark.parametrize("name", RESTORABLE)
def test_a_restored_env_continues_bit_for_bit(name: str, steps: int, seed: int) -> None:
    generator = np.random.default_rng(seed)

    def act(spec: Any) -> NDArray[Any]:
        if spec.action.kind == "gaussian":
            return generator.normal(0, 2, (3, *spec.action.shape)).astype(np.float32)
        return generator.integers(0, spec.action.nvec[0], 3)

    block, spec, episode = single(n=3, seed=seed, first_env=2, **RESTORABLE[name])
    rows, _ = play(block, spec, 3, steps, lambda t: act(spec))
    other, _, other_episode = single(n=3, seed=seed, first_env=2, **RESTORABLE[name])
    start = blank_row(spec, 3)
    assert other.restore(histories_of(rows, 3, spec), start) == []
    assert other_episode.tolist() == episode.tolist()
    ours, theirs = [rows[-1]], [start]
    for _ in range(10):
        action = act(spec)
        for stepped, run in ((block, ours), (other, theirs)):
            run.append(blank_row(spec, 3))
            row = blank_row(spec, 3)
            stepped.step(action, row, run[-1])
            run.append(row)
    for mine, yours in zip(ours, theirs, strict=True):
        for leaf in spec.obs:
            assert mine.obs[leaf.name].tobytes() == yours.obs[leaf.name].tobytes()
        if mine.mask is not None:
            assert yours.mask is not None
            assert np.array_equal(mine.mask, yours.mask)
    assert other_episode.tolist() == episode.tolist()


def test_an_env_that_ignores_its_seed_starts_a_new_episode_and_is_reported() -> None:
    class Wilful(SpaceEnv):
        def look(self) -> Any:
            return np.random.default_rng().random(3).astype(np.float32)

    block, spec, _ = single(Wilful, n=2)
    rows, _ = play(block, spec, 2, 3)
    other, _, episode = single(Wilful, n=2)
    start = blank_row(spec, 2)
    assert other.restore(histories_of(rows, 2, spec), start) == [0, 1]
    assert episode.tolist() == [1, 1]
    assert inner(other)[0].seeds == [episode_seed(7, 0, 0), episode_seed(7, 0, 1)]
    assert (start.obs["obs"] != 77).all()


def test_only_the_env_whose_replay_differs_restarts() -> None:
    block, spec, _ = single("CartPole-v1", n=3)
    rows, _ = play(block, spec, 3, 5)
    histories = histories_of(rows, 3, spec)
    histories[1].obs["obs"][2] = np.nextafter(histories[1].obs["obs"][2], np.float32(9))  # the last bit
    other, _, episode = single("CartPole-v1", n=3)
    start = blank_row(spec, 3)
    assert other.restore(histories, start) == [1]
    assert episode.tolist() == [0, 1, 0]
    assert np.array_equal(start.obs["obs"][[0, 2]], rows[-1].obs["obs"][[0, 2]])


def test_an_episode_that_ends_during_the_replay_restarts() -> None:
    block, spec, _ = single(lambda: SpaceEnv(length=9), n=1)
    rows, _ = play(block, spec, 1, 5)
    other, _, episode = single(lambda: SpaceEnv(length=4), n=1)
    assert other.restore(histories_of(rows, 1, spec), blank_row(spec, 1)) == [0]
    assert episode.tolist() == [1]


def test_step_numbers_in_errors_count_from_the_episodes_begin_after_a_restore() -> None:
    kwargs = {"mode": "raise", "at_step": 8}
    block, spec, _ = single(FAULT, n=1, kwargs=kwargs)
    rows, _ = play(block, spec, 1, 5)
    other, _, _ = single(FAULT, n=1, kwargs=kwargs)
    later = [blank_row(spec, 1) for _ in range(5)]
    assert other.restore(histories_of(rows, 1, spec), later[0]) == []
    with pytest.raises(EnvError, match="raised in step 8"):
        advance(other, later)

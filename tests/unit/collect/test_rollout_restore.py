"""The rollout collector restores envs from their histories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.games import Cards, Counter
from tests.unit.collect.histories import histories_now
from tests.unit.collect.test_rollout import MaskedActor, SeedlessCounter, bed

from paceline.collect.history import EpisodeHistory
from paceline.memory.slots import Slots
from paceline.spec import PLAIN

Leaves = Mapping[str, NDArray[Any]]
SEED, SIZE = 11, 2


def took(history: EpisodeHistory, slots: Slots) -> None:
    arrays = slots.arrays
    history.extend(arrays["action"], arrays["terminated"] | arrays["truncated"], arrays["valid"])


@pytest.mark.parametrize("n_steps", [1, 4, 7])
@pytest.mark.parametrize("rollouts", [1, 2, 3])
def test_histories_restore_every_env_exactly(n_steps: int, rollouts: int) -> None:
    """Fresh envs restored from a snapshot continue exactly as the original envs do."""

    def source() -> gym.Env[Any, Any]:
        return Reset(Counter(length=5))

    with bed(source, n_steps=n_steps) as original, bed(source, n_steps=n_steps, cuts=(0, 1, 3)) as copy:
        history = EpisodeHistory(original.slots.shape.spec, original.arena["episode"], original.slots.shown)
        original.reset()
        for _ in range(rollouts):
            original.collect()
            took(history, original.slots)
        assert [len(h.actions) for h in histories_now(history)] == [n_steps * rollouts % 5] * 6
        other = EpisodeHistory(copy.slots.shape.spec, copy.arena["episode"], copy.slots.shown)
        state = {key: value.copy() for key, value in history.state().items()}
        assert copy.restore(other.load(state)) == []
        copy.step = original.step
        for _ in range(3):
            assert copy.arena["episode"].tolist() == original.arena["episode"].tolist()
            a, b = original.collect(), copy.collect()
            for name in ("action", "reward", "log_prob", "value", "truncated"):
                assert getattr(a, name).numpy().tobytes() == getattr(b, name).numpy().tobytes(), name
            assert a.obs[PLAIN].numpy().tobytes() == b.obs[PLAIN].numpy().tobytes()
            took(history, original.slots)
            took(other, copy.slots)
            theirs, mine = history.state(), other.state()
            assert {k: v.tobytes() for k, v in theirs.items()} == {k: v.tobytes() for k, v in mine.items()}


class Reset(gym.Wrapper[Any, Any, Any, Any]):
    """Hides the number of resets, which a fresh env cannot have."""

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return obs * [1, 0, 1], info

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        return (obs * [1, 0, 1], *rest)


def test_env_that_cannot_be_restored_starts_a_new_episode_and_is_named() -> None:
    with bed(SeedlessCounter) as it:
        history = EpisodeHistory(it.slots.shape.spec, it.arena["episode"], it.slots.shown)
        it.reset()
        it.collect()
        took(history, it.slots)
        episodes = it.arena["episode"].copy()
        restarted = it.restore(histories_now(history))
        assert restarted == list(range(6))
        np.testing.assert_array_equal(it.arena["episode"], episodes + 1)
        history.forget(restarted)
        assert [len(h.actions) for h in histories_now(history)] == [0] * 6
        batch = it.collect()
        assert (batch.obs[PLAIN][0, :, 2] == 0).all()


def test_histories_keep_masks_and_dict_observations() -> None:
    with bed(Cards, actor=MaskedActor()) as it:
        history = EpisodeHistory(it.slots.shape.spec, it.arena["episode"], it.slots.shown)
        it.reset()
        it.collect()
        took(history, it.slots)
        before = it.slots.trajectory(0)
        assert before.mask is not None
        expected = before.mask[-1].clone()
        state, wrong = history.state(), histories_now(history)
        for row in (it.slots.arrays["mask"], it.slots.arrays["obs/hand"]):
            row[-1] = 0
        assert it.restore(EpisodeHistory(it.slots.shape.spec, it.arena["episode"], it.slots.shown).load(state)) == []
        assert it.slots.trajectory(0).mask[-1].tolist() == expected.tolist()  # type: ignore[index]
        assert wrong[4].mask is not None
        wrong[4].mask[...] = ~wrong[4].mask
        assert it.restore(wrong) == [4]

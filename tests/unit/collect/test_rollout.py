"""The rollout collector: row t holds the observation, action and reward of step t."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.games import Cards, Counter

from paceline.batch import Trajectory
from paceline.collect.rollout import InterleavedCollectors, RolloutCollector
from paceline.envs.block import BlockSetup, History
from paceline.envs.make import EnvRecipe
from paceline.envs.make_block import make_block
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_shape import SlotShape
from paceline.memory.slots import Slots
from paceline.memory.worker_status import BEAT, STOP, heartbeat_field
from paceline.ops.distributions import head_for
from paceline.spec import PLAIN

Leaves = Mapping[str, NDArray[Any]]
SEED, SIZE = 11, 2


class SeeingActor:
    """Logits and values that are a function of the observation, and a list of all that it was shown."""

    def __init__(self) -> None:
        self.seen: list[NDArray[Any]] = []

    def __call__(self, obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        leaf = obs[PLAIN]
        self.seen.append(leaf.copy())
        return self.logits(leaf), self.value(leaf)

    @staticmethod
    def logits(leaf: NDArray[Any]) -> NDArray[np.float32]:
        logits = np.zeros((len(leaf), 3), np.float32)
        logits[np.arange(len(leaf)), leaf[:, 2].astype(int) % 3] = 3.0  # depends on the step
        return logits

    @staticmethod
    def value(leaf: NDArray[Any]) -> NDArray[np.float32]:
        return (leaf @ np.array([1.0, 100.0, 10.0], np.float32)).astype(np.float32)


class WaitingActor(SeeingActor):
    """The same, whose values can wait; and a list of how many rows they were asked for at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[int] = []

    def begin(self) -> None:
        pass

    def act(self, obs: Leaves, /) -> NDArray[np.float32]:
        return self.logits(obs[PLAIN])

    def values(self, obs: Leaves, value: NDArray[np.float32], /) -> None:
        self.pieces.append(len(value))
        value[...] = self.value(obs[PLAIN].reshape(-1, 3)).reshape(value.shape)

    def row_actor(self, at: int, /) -> Any:
        raise NotImplementedError


@dataclass
class Bed:
    """A collector over Counter envs with all that it writes to."""

    arena: Arena
    slots: Slots
    collectors: list[InterleavedCollectors]
    actor: SeeingActor
    group_actor: SeeingActor
    step: int = 0

    def reset(self) -> None:
        for collector in self.collectors:
            collector.reset()

    def collect(self) -> Trajectory:
        for collector in self.collectors:
            collector.collect(self.step)
        self.step += self.slots.shape.n_steps
        return self.slots.trajectory(0)

    def restore(self, histories: Sequence[History]) -> list[int]:
        return [env for collector in self.collectors for env in collector.restore(histories)]


@contextmanager
def bed(
    source: Any, *, n_steps: int = 7, groups: int = 3, cuts: Sequence[int] = (0, 3), actor: Any = None
) -> Iterator[Bed]:
    recipe = EnvRecipe(source=source)
    spec = recipe.probe()
    shape = SlotShape(spec, n_steps, groups, SIZE)
    arena = Arena.create([*shape.fields(), Field.of("episode", (shape.n_envs,), np.int64), heartbeat_field(groups)])
    slots = Slots(arena, shape)
    act, group_act = actor or SeeingActor(), SeeingActor()
    collectors = [
        RolloutCollector(
            make_block(
                BlockSetup(
                    recipe=recipe,
                    spec=spec,
                    seed=SEED,
                    first_group=first,
                    groups=last - first,
                    group_size=SIZE,
                    episode=arena["episode"][first * SIZE : last * SIZE],
                )
            ),
            [slots],
            act,
            group_act,
            head_for(spec.action),
            seed=SEED,
            first_group=first,
            groups=last - first,
            heartbeat=arena["heartbeat"][i],
        )
        for i, (first, last) in enumerate(pairwise(cuts))
    ]
    try:
        yield Bed(arena, slots, [InterleavedCollectors([one]) for one in collectors], act, group_act)
    finally:
        for collector in collectors:
            collector.close()
        arena.close()


def counter(**kwargs: Any) -> Any:
    return partial(Counter, **kwargs)


@pytest.mark.parametrize("reuse", [False, True], ids=["fresh arrays", "one array reused"])
def test_the_stored_observation_is_what_the_action_was_chosen_from(reuse: bool) -> None:
    with bed(counter(length=5, reuse=reuse)) as it:
        it.reset()
        for _ in range(3):
            it.actor.seen.clear()
            batch = it.collect()
            obs = batch.obs[PLAIN].numpy()
            # T forwards to act and one to bootstrap; the env's array may have been overwritten since.
            np.testing.assert_array_equal(obs, np.stack(it.actor.seen))
            np.testing.assert_array_equal(batch.value.numpy(), SeeingActor.value(obs.reshape(-1, 3)).reshape(8, -1))
            # The env pays 10 * step + action: the reward beside an observation is for the action beside it.
            paid = 10 * obs[:-1, :, 2] + batch.action.numpy()
            np.testing.assert_array_equal(batch.reward.numpy(), paid)
            logits = SeeingActor.logits(obs[:-1].reshape(-1, 3))
            log_prob = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            chosen = np.take_along_axis(log_prob, batch.action.numpy().reshape(-1, 1), 1)[:, 0]
            np.testing.assert_allclose(batch.log_prob.numpy().reshape(-1), chosen, rtol=1e-5)
            # A policy that prefers one action mostly takes it, but explores.
            assert 0.6 < (batch.action.numpy() == obs[:-1, :, 2] % 3).mean() < 1.0


@pytest.mark.parametrize(
    ("steps", "kilobytes", "pieces"),
    [(2048, 1024, [8]), (12, 1024, [2, 2, 2, 2]), (2048, 0.22, [3, 3, 2]), (1, 0.001, [1] * 8)],
    ids=["all at once", "few steps", "few bytes", "a row at least"],
)
def test_deferred_values_are_computed_in_chunks_of_rows(
    steps: int, kilobytes: float, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 6 envs that show 3 numbers each: a row is 72 bytes.
    monkeypatch.setattr("paceline.collect.rollout.SETTLED_STEPS", steps)
    monkeypatch.setattr("paceline.collect.rollout.SETTLED_BYTES", int(1024 * kilobytes))
    actor = WaitingActor()
    with bed(counter(length=5), actor=actor) as it:
        it.reset()
        batch = it.collect()
        assert actor.pieces == pieces
        seen = batch.obs[PLAIN].numpy().reshape(-1, 3)
        np.testing.assert_array_equal(batch.value.numpy(), SeeingActor.value(seen).reshape(8, -1))


class Blind(gym.Env[Any, Any]):
    """Shows nothing at all."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (0,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.empty(0, np.float32), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        return np.empty(0, np.float32), float(action), False, False, {}


class BlindActor(WaitingActor):
    """Acts without having seen anything."""

    @staticmethod
    def logits(leaf: NDArray[Any]) -> NDArray[np.float32]:
        return np.zeros((len(leaf), 3), np.float32)

    def values(self, obs: Leaves, value: NDArray[np.float32], /) -> None:
        value[...] = 7.0


def test_observations_may_be_empty() -> None:
    with bed(Blind, actor=BlindActor()) as it:
        it.reset()
        batch = it.collect()
        assert batch.obs[PLAIN].shape == (8, 6, 0)
        assert (batch.value == 7.0).all()


def test_a_rollout_continues_the_episodes_of_the_last_one() -> None:
    with bed(counter(length=5)) as it:
        it.reset()
        first = it.collect().obs[PLAIN].numpy().copy()
        second = it.collect().obs[PLAIN].numpy()
        np.testing.assert_array_equal(first[-1], second[0])
        counted = np.concatenate([first[:-1], second[:-1]])[:, 0, 2]
        assert counted.tolist() == [t % 5 for t in range(14)], "an env was reset out of turn"
        assert (second[-1, :, 1] == 1 + 14 // 5).all(), "resets: the first one and one per finished episode"


def test_final_observations_and_values_of_truncated_episodes_are_stored() -> None:
    with bed(counter(length=3)) as it:
        it.reset()
        batch = it.collect()
        finals = batch.finals
        # Episodes of 3 in 7 steps: rows 2 and 5 end one in each of the 6 envs.
        assert sorted(zip(finals.t.tolist(), finals.env.tolist(), strict=True)) == [
            (t, env) for t in (2, 5) for env in range(6)
        ]
        last = finals.obs[PLAIN].numpy()
        before = batch.obs[PLAIN].numpy()[finals.t, finals.env]
        np.testing.assert_array_equal(last[:, :2], before[:, :2])  # the same episode ...
        assert (last[:, 2] == 3).all()  # ... after its last step
        np.testing.assert_array_equal(finals.value.numpy(), SeeingActor.value(last))
        after = batch.obs[PLAIN].numpy()[finals.t + 1, finals.env]
        assert (after[:, 2] == 0).all(), "the row after shows the new episode"
        assert batch.truncated[[2, 5]].all()
        assert int(batch.truncated.sum()) == 12
        # Values are computed in whole groups: a forward's last bits depend on its batch size.
        assert {len(seen) for seen in it.group_actor.seen} == {SIZE}
        # The next rollout begins with none.
        assert sorted(set(it.collect().finals.t.tolist())) == [1, 4]


def test_terminated_episodes_have_no_final_observation() -> None:
    with bed(counter(length=3, terminates=True)) as it:
        it.reset()
        batch = it.collect()
        assert batch.terminated[[2, 5]].all()
        assert not batch.truncated.any()
        assert len(batch.finals.t) == 0


def test_the_result_does_not_depend_on_which_worker_collects_a_group() -> None:
    def fields(cuts: tuple[int, ...]) -> dict[str, bytes]:
        with bed(counter(length=3), cuts=cuts) as it:
            it.reset()
            it.collect()
            it.collect()
            names = ("obs/obs", "action", "reward", "truncated", "log_prob", "value", "final_value", "final_at")
            return {name: it.arena[name].tobytes() for name in names}

    assert fields((0, 3)) == fields((0, 1, 3)) == fields((0, 1, 2, 3))


def test_stop_flag_ends_a_rollout_early() -> None:
    with bed(counter()) as it:
        it.reset()
        it.arena["heartbeat"][0, STOP] = 1
        before = int(it.arena["heartbeat"][0, BEAT])
        it.collect()
        assert it.arena["heartbeat"][0, BEAT] == before + 1


def test_every_row_increments_the_heartbeat() -> None:
    with bed(counter()) as it:
        assert it.arena["heartbeat"][0, BEAT] == 0
        it.reset()
        before = int(it.arena["heartbeat"][0, BEAT])
        assert before == 1, "after the first reset the time limit is that of a step"
        it.collect()
        assert int(it.arena["heartbeat"][0, BEAT]) == before + 7 + 1, "and what is computed at the end"


class MaskedActor(SeeingActor):
    """Prefers high cards, whatever is legal."""

    def __call__(self, obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        logits = np.tile(np.arange(5, dtype=np.float32) * 5, (len(obs["turn"]), 1))
        return logits, np.zeros(len(obs["turn"]), np.float32)


def test_masks_are_stored_with_their_actions() -> None:
    with bed(Cards, actor=MaskedActor()) as it:
        it.reset()
        for _ in range(2):
            batch = it.collect()  # Cards raises when an illegal card is played
            assert batch.mask is not None
            np.testing.assert_array_equal(batch.mask.numpy(), batch.obs["hand"].numpy().astype(bool))
            assert np.take_along_axis(batch.mask[:-1].numpy(), batch.action.numpy()[..., None], 2).all()


class SeedlessCounter(Counter):
    """Ignores its seed and is nowhere twice: cannot be put back."""

    count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        SeedlessCounter.count += 1
        return super().reset(seed=SeedlessCounter.count)

"""The PPO learner on hand-made batches: updates, skipped updates and early stopping."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.algos.learners import SHAPE, B, D, Make, Rig, T, batch, make, vector
from torch import Tensor

from paceline.algos.bad_updates import MAX_BAD_UPDATES
from paceline.algos.ppo import PPOLearner
from paceline.batch import Trajectory
from paceline.errors import LearnerError
from paceline.memory.shards import SAMPLE
from paceline.memory.slots import Slots
from paceline.ops.adam import FlatAdam
from paceline.spec import PLAIN

__all__ = ["make"]  # a fixture


def advantage_by_definition(b: Trajectory, gamma: float, lam: float) -> np.ndarray:
    """Each env by itself, each step by the sum that defines it."""
    after = {(int(t), int(e)): float(v) for t, e, v in zip(b.finals.t, b.finals.env, b.finals.value, strict=True)}
    result = np.zeros((T, B))
    for env in range(B):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                following = after.get((k, env), float(b.value[k + 1, env]))
                bootstrap = 0.0 if b.terminated[k, env] else following
                delta = float(b.reward[k, env]) + gamma * bootstrap - float(b.value[k, env])
                result[t, env] += weight * delta
                if b.terminated[k, env] or b.truncated[k, env]:
                    break
                weight *= gamma * lam
    return result


def prepared(learner: PPOLearner, b: Trajectory, name: str) -> np.ndarray:
    learner._prepare(b, 0.2)
    column: np.ndarray = learner._shards.samples[:, SAMPLE.index(name)].reshape(T, B).numpy().copy()
    return column


def advantages(learner: PPOLearner, b: Trajectory) -> np.ndarray:
    return prepared(learner, b, "advantage")


def test_advantages_are_those_of_the_definition_env_by_env(make: Make) -> None:
    learner, b = make(gamma=0.9, gae_lambda=0.8), batch()
    expected = advantage_by_definition(b, 0.9, 0.8)
    np.testing.assert_allclose(advantages(learner, b), expected, atol=1e-5)
    np.testing.assert_allclose(prepared(learner, b, "returns"), expected + b.value[:-1].numpy(), atol=1e-5)


def test_advantages_of_an_env_do_not_depend_on_other_envs(make: Make) -> None:
    learner, b = make(), batch()
    before = advantages(learner, b)
    reward = b.reward.clone()
    reward[:, 3] += 100.0
    after = advantages(learner, dataclasses.replace(b, reward=reward))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (after[:, 3] > before[:, 3] + 50).all()


def test_advantages_do_not_depend_on_later_episodes(make: Make) -> None:
    learner, b = make(), batch()
    before = advantages(learner, b)
    reward, value = b.reward.clone(), b.value.clone()
    reward[3:, 1] += 100.0  # the episode that follows a termination
    value[3:, 1] -= 50.0
    reward[2:, 2] += 100.0  # and the one that follows a truncation
    value[2, 2] -= 50.0
    after = advantages(learner, dataclasses.replace(b, reward=reward, value=value))
    np.testing.assert_array_equal(before[:3, 1], after[:3, 1])
    np.testing.assert_array_equal(before[:2, 2], after[:2, 2])
    assert (after[3:, 1] != before[3:, 1]).all()


def test_truncation_bootstraps_from_the_last_real_observation_and_termination_from_nothing(make: Make) -> None:
    learner, b = make(gamma=0.9, gae_lambda=0.8), batch()
    got = advantages(learner, b)
    assert got[1, 2] == pytest.approx(float(b.reward[1, 2]) + 0.9 * 7.0 - float(b.value[1, 2]), abs=1e-5)
    assert got[4, 2] == pytest.approx(float(b.reward[4, 2]) - 0.9 * 8.0 - float(b.value[4, 2]), abs=1e-5)
    assert got[2, 1] == pytest.approx(float(b.reward[2, 1] - b.value[2, 1]), abs=1e-5)


def test_observation_action_and_targets_of_a_step_share_a_row(make: Make) -> None:
    learner, b = make(), batch()
    learner.update(b, 0.0)
    rows = Slots(learner.arena, SHAPE).samples()
    for row, (t, env) in ((0, (0, 0)), (B + 2, (1, 2)), (3 * B + 1, (3, 1))):
        assert rows.obs[PLAIN][row].tolist() == b.obs[PLAIN][t, env].tolist()
        assert rows.action[row] == b.action[t, env]
        assert learner._shards.samples[row, SAMPLE.index("value")] == b.value[t, env]
        assert learner._shards.samples[row, SAMPLE.index("log_prob")] == b.log_prob[t, env]


def test_minibatches_have_every_step_once_ordered_by_seed_version_and_epoch(make: Make) -> None:
    def orders(learner: Rig, b: Trajectory) -> list[list[int]]:
        learner.pieces.clear()
        learner.update(b, 0.0)
        assert [len(piece) for piece in learner.pieces] == [12, 12] * 2
        return [learner.pieces[0] + learner.pieces[1], learner.pieces[2] + learner.pieces[3]]

    first, second = orders(make(), batch())
    assert sorted(first) == list(range(T * B))
    assert orders(make(), batch(seed=5)) == [first, second], "what is in the batch does not matter"
    assert orders(make(), batch(version=-1)) == [first, second], "nor on the version that collected it"
    twice = make()
    orders(twice, batch())
    for other in (second, orders(twice, batch())[0], orders(make(seed=2), batch())[0]):
        assert sorted(other) == list(range(T * B))
        assert other != first


@pytest.mark.parametrize(("batch_size", "per_epoch"), [(6, 4), (12, 2), (24, 1), (1000, 1)])
def test_a_batch_size_of_the_whole_batch_or_more_means_one_full_batch(
    batch_size: int, per_epoch: int, make: Make
) -> None:
    learner = make(batch_size=batch_size, n_epochs=3)
    stats = learner.update(batch(), 0.0)
    assert learner.n_updates == stats["n_updates"] == 3 * per_epoch
    assert learner.version == 1, "one publication per batch"


def invalid_batch(**replaced: Any) -> Trajectory:
    """Row 3 of env 1 and rows 2, 5 of env 2 follow an episode's end: a vector env's own resets."""
    b = batch(**replaced)
    for t, env in ((3, 1), (2, 2), (5, 2)):
        b.valid[t, env] = False
        b.reward[t, env] = 0.0
    return b


def test_invalid_rows_change_nothing(make: Make) -> None:
    """Neither the weights nor the normalisers nor the statistics see what stands in them."""
    settings: dict[str, Any] = {"obs_norm": True, "reward_norm": True, "batch_size": 7}
    one, other = make(**settings), make(**settings)
    clean, dirty = invalid_batch(), invalid_batch()
    gone = ~dirty.valid
    dirty.obs[PLAIN][:-1][gone] = 1e3
    dirty.action[gone] = 1 - dirty.action[gone]
    dirty.log_prob[gone] = -30.0
    for _ in range(2):
        assert one.update(clean, 0.0) == other.update(dirty, 0.0)
    assert vector(one) == vector(other)
    per_epoch = len(one.pieces) // 4
    first = [row for piece in one.pieces[:per_epoch] for row in piece]
    assert sorted(first) == np.flatnonzero(clean.valid.numpy()).tolist()


def test_a_batch_without_valid_rows_changes_no_weights(make: Make) -> None:
    for settings in ({}, {"batch_size": None}, {"target_kl": 0.1}):
        learner = make(obs_norm=True, reward_norm=True, **settings)
        before = next(iter(learner.policy.state_dict().values())).clone()
        stats = learner.update(batch(valid=torch.zeros(T, B, dtype=torch.bool)), 0.0)
        assert stats["loss"] == stats["n_updates"] == 0.0
        assert torch.equal(before, next(iter(learner.policy.state_dict().values())))
        assert learner.version == 1
        assert learner.update(batch(), 0.0)["n_updates"] > 0


def test_explained_variance_is_that_of_the_valid_rows(make: Make) -> None:
    learner, b = make(gamma=0.9, gae_lambda=0.8), invalid_batch()
    seen = b.valid.numpy()
    value = b.value[:-1].numpy()[seen]
    returns = advantage_by_definition(b, 0.9, 0.8)[seen] + value
    expected = 1 - np.var(returns - value) / np.var(returns)
    assert learner.update(b, 0.0)["explained_variance"] == pytest.approx(expected, abs=1e-4)


def test_target_kl_ends_the_epochs(make: Make) -> None:
    settings: dict[str, Any] = {"n_epochs": 5, "learning_rate": 0.05}
    free, bound, loose = make(**settings), make(target_kl=1e-4, **settings), make(target_kl=1e4, **settings)
    for learner in (free, bound, loose):
        learner.update(batch(), 0.0)
    assert free.n_updates == loose.n_updates == 10
    assert bound.n_updates == 2, "after the first epoch"
    bound.update(batch(version=1), 0.0)
    assert bound.n_updates == 4, "and again in the next batch"


def test_learning_rate_schedules(make: Make) -> None:
    linear, constant = make(lr_schedule="linear", learning_rate=0.01), make(learning_rate=0.01)
    for progress in (0.0, 0.25, 1.0):
        before = vector(linear)
        assert linear.update(batch(), progress)["learning_rate"] == pytest.approx(0.01 * (1 - progress))
        assert constant.update(batch(), progress)["learning_rate"] == 0.01
        assert (vector(linear) == before) == (progress == 1.0), "at the end of the budget nothing moves any more"
    assert vector(linear) != vector(constant)


def test_the_clip_range_follows_its_schedule(make: Make) -> None:
    """Every update has the weights of a learner with the clip range of that moment as a constant."""
    b = batch()
    b = dataclasses.replace(b, log_prob=b.log_prob + torch.linspace(-0.6, 0.6, T * B).reshape(T, B))
    by_schedule = make(clip_schedule="linear", clip_range=0.4, n_epochs=2)
    by_function = make(clip_range=lambda left: 0.4 * left, n_epochs=2)
    for progress, expected in ((0.0, 0.4), (0.75, 0.1)):
        constant = make(clip_range=expected, n_epochs=2)
        constant.load(by_schedule.state())
        for learner in (by_schedule, by_function, constant):
            stats = learner.update(dataclasses.replace(b, version=learner.version), progress)
            assert stats["clip_range"] == pytest.approx(expected)
            assert stats["clip_fraction"] > 0
        assert vector(by_schedule) == vector(by_function)
        np.testing.assert_allclose(
            np.frombuffer(vector(by_schedule), np.float32), np.frombuffer(vector(constant), np.float32), atol=1e-6
        )


def test_a_gradient_that_is_not_finite_is_skipped_and_counted(make: Make) -> None:
    learner = make(batch_size=24, n_epochs=2, normalize_advantage=False)
    reward = batch().reward
    reward[3, 3] = float("nan")
    before = vector(learner)
    stats = learner.update(batch(reward=reward), 0.0)
    assert vector(learner) == before
    assert (learner.n_updates, learner.bad.count) == (0, 2)
    assert np.isfinite(stats["loss"])
    learner.update(batch(), 0.0)
    assert vector(learner) != before
    assert np.isfinite(learner._weights.vector.numpy()).all()
    assert learner.n_updates == 2


@pytest.mark.parametrize("number", [float("inf"), 3e38])
def test_huge_rewards_cause_no_numpy_warning(make: Make, number: float) -> None:
    learner = make(batch_size=24, n_epochs=1, normalize_advantage=True)
    reward = batch().reward
    reward[3, 3:5] = number
    before = vector(learner)
    stats = learner.update(batch(reward=reward), 0.0)  # warnings are errors here
    assert (vector(learner) == before, learner.bad.count) == (True, 1)
    assert np.isfinite(stats["policy_gradient_loss"])


def test_too_many_in_a_row_are_an_error(make: Make) -> None:
    learner = make(batch_size=24, n_epochs=MAX_BAD_UPDATES - 1)
    reward = torch.full((T, B), float("nan"))
    learner.update(batch(reward=reward), 0.0)
    learner.update(batch(), 0.0)  # one good update in between
    learner.update(batch(reward=reward), 0.0)
    assert learner.bad.count == 2 * (MAX_BAD_UPDATES - 1)
    in_a_row = 2 * (MAX_BAD_UPDATES - 1)
    with pytest.raises(LearnerError, match=rf"NaN or infinite {in_a_row} times in a row.*--learning-rate"):
        learner.update(batch(reward=reward), 0.0)


def test_state_round_trip_is_bit_exact(make: Make) -> None:
    original, resumed, fresh = make(), make(), make()
    original.update(batch(), 0.0)
    original.update(batch(seed=1, version=1), 0.0)
    state = {key: np.array(value) for key, value in original.state().items()}
    resumed.load(copy.deepcopy(state))
    assert vector(resumed) == vector(original)
    assert (resumed.version, resumed.n_updates) == (2, original.n_updates)
    fresh.load_weights(state["weights"])
    assert vector(fresh) == vector(original)
    assert fresh.version == 0
    following = batch(seed=2, version=2)
    for learner in (original, resumed, fresh):
        learner.update(following, 0.0)
    assert vector(resumed) == vector(original)
    assert vector(fresh) != vector(original), "without Adam's moments it is another run"


def test_bad_updates_in_a_row_survive_a_resume(make: Make) -> None:
    learner, resumed = make(batch_size=24, n_epochs=MAX_BAD_UPDATES - 1), make(batch_size=24, n_epochs=1)
    reward = torch.full((T, B), float("nan"))
    learner.update(batch(reward=reward), 0.0)
    resumed.load({key: np.array(value) for key, value in learner.state().items()})
    with pytest.raises(LearnerError):
        resumed.update(batch(reward=reward), 0.0)


def test_parameters_stay_views_of_the_published_vector(make: Make) -> None:
    learner = make()
    start, end = learner._weights.vector.data_ptr(), learner._weights.vector.numel() * 4
    state = {key: np.array(value) for key, value in learner.state().items()}
    for step in range(3):
        learner.update(batch(version=step), 0.0)
        assert all(0 <= p.data_ptr() - start < end for p in learner.policy.parameters())
    learner.load(state)
    learner.update(batch(), 0.0)
    assert all(0 <= p.data_ptr() - start < end for p in learner.policy.parameters())


def test_gradient_norm_is_clipped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    step = FlatAdam.step

    def spy(self: FlatAdam, grad: Tensor, lr: float) -> None:
        taken.append(float(grad.norm()))
        step(self, grad, lr)

    monkeypatch.setattr(FlatAdam, "step", spy)
    huge = batch(reward=batch().reward * 1e4)
    learner = make(max_grad_norm=0.5)
    learner.update(huge, 0.0)
    assert min(learner.norms) > 10
    assert taken == pytest.approx([0.5] * len(taken), rel=1e-3)
    taken.clear()
    free = make(max_grad_norm=1e9)
    free.update(huge, 0.0)
    assert taken == pytest.approx(free.norms, rel=1e-4)


def test_normalisers_are_constant_while_learning_from_a_batch(make: Make) -> None:
    learner = make(obs_norm=True, reward_norm=True, gamma=0.9, gae_lambda=0.8)
    assert learner._reward_norm is not None
    assert learner._obs_norm is not None
    big = batch(reward=batch().reward * 3)
    np.testing.assert_allclose(advantages(learner, big), advantage_by_definition(big, 0.9, 0.8), atol=1e-4)
    learner.update(big, 0.0)
    scale = float(learner._reward_norm._moments.inv_std)
    assert scale < 0.6
    scaled = dataclasses.replace(big, reward=big.reward * scale)
    np.testing.assert_allclose(advantages(learner, big), advantage_by_definition(scaled, 0.9, 0.8), atol=1e-4)
    rows = big.obs[PLAIN][:-1].numpy().reshape(-1, D)
    np.testing.assert_allclose(learner._obs_norm.arrays[PLAIN][0], rows.mean(0), atol=1e-5)


def test_learner_time_is_recorded_by_phase(make: Make) -> None:
    learner = make()
    learner.update(batch(), 0.0)
    assert {"learn", "sync"} <= set(learner._clock.snapshot().seconds)

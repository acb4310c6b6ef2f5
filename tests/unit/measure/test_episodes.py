from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.calls import calls_of

from paceline.errors import CheckpointError
from paceline.measure.episodes import EpisodeTracker
from paceline.spec import FAILED, SUCCEEDED

Flags = NDArray[np.bool_]


class ByDefinition:
    """The definition of episodes: two nested loops over [T, B]."""

    def __init__(self, n_envs: int) -> None:
        self.returns = [0.0] * n_envs
        self.lengths = [0] * n_envs
        self.steps = 0

    def update(self, reward: NDArray[Any], ended: Flags, valid: Flags) -> list[tuple[int, int, int, float, int]]:
        found = []
        for t in range(reward.shape[0]):
            self.steps += int(valid[t].sum())
            for b in range(reward.shape[1]):
                if not valid[t, b]:
                    continue
                self.returns[b] += float(reward[t, b])
                self.lengths[b] += 1
                if ended[t, b]:
                    found.append((t, b, self.steps, self.returns[b], self.lengths[b]))
                    self.returns[b], self.lengths[b] = 0.0, 0
        return found


def rollout(rng: np.random.Generator, t: int, b: int, p_end: float, p_valid: float) -> tuple[NDArray[Any], ...]:
    # Multiples of 1/4 add exactly, whatever the order.
    reward = (rng.integers(-20, 20, (t, b)) / 4).astype(np.float32)
    valid = rng.random((t, b)) < p_valid
    terminated = (rng.random((t, b)) < p_end) & valid
    truncated = (rng.random((t, b)) < p_end) & valid
    return reward, terminated, truncated, valid


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    t=st.integers(1, 9),
    b=st.integers(1, 5),
    p_end=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    p_valid=st.sampled_from([0.7, 1.0]),
)
def test_episodes_equal_those_of_two_nested_loops(seed: int, t: int, b: int, p_end: float, p_valid: float) -> None:
    rng = np.random.default_rng(seed)
    tracker, reference = EpisodeTracker(b), ByDefinition(b)
    recent: list[tuple[float, int]] = []
    for _ in range(4):
        reward, terminated, truncated, valid = rollout(rng, t, b, p_end, p_valid)
        got = tracker.update(reward, terminated, truncated, valid)
        want = reference.update(reward, terminated | truncated, valid)
        rows = zip(*(a.tolist() for a in (got.t, got.env, got.step, got.returns, got.length)), strict=True)
        assert list(rows) == want
        recent += [(r, n) for *_, r, n in want]
    assert tracker.steps == reference.steps
    assert tracker.episodes == len(recent)
    if recent:
        assert tracker.mean_return == pytest.approx(np.mean([r for r, _ in recent[-100:]]))
        assert tracker.mean_length == pytest.approx(np.mean([n for _, n in recent[-100:]]))
    else:
        assert tracker.mean_return is None
        assert tracker.mean_length is None


def test_flags_on_an_invalid_row_end_nothing() -> None:
    reward = np.ones((3, 1), np.float32)
    none = np.zeros((3, 1), np.bool_)
    terminated = np.array([[True], [True], [False]])
    valid = np.array([[True], [False], [True]])
    tracker = EpisodeTracker(1)
    assert tracker.update(reward, terminated, none, valid).length.tolist() == [1]
    assert tracker.longest_under_way == 1


def test_nan_stays_in_its_own_episode() -> None:
    reward = np.array([[1.0], [np.nan], [2.0], [3.0]], np.float32)
    terminated = np.array([[False], [True], [False], [True]])
    false, true = np.zeros_like(terminated), np.ones_like(terminated)
    returns = EpisodeTracker(1).update(reward, terminated, false, true).returns
    assert np.isnan(returns[0])
    assert returns[1] == 5.0


def test_column_slices_equal_the_whole() -> None:
    rng = np.random.default_rng(0)
    whole, parts = EpisodeTracker(6), EpisodeTracker(6)
    for _ in range(3):
        arrays = rollout(rng, 12, 6, 0.1, 0.9)
        want = whole.update(*arrays)
        got = [parts.update(*(a[:, cut] for a in arrays), first_env=cut.start) for cut in (slice(0, 2), slice(2, 6))]
        flat = sorted((t, e, r, n) for g in got for t, e, r, n in zip(g.t, g.env, g.returns, g.length, strict=True))
        assert flat == list(zip(want.t, want.env, want.returns, want.length, strict=True))
    assert parts.steps == whole.steps
    np.testing.assert_array_equal(parts.state()["return"], whole.state()["return"])


def test_mean_is_of_the_last_hundred() -> None:
    tracker = EpisodeTracker(1)
    ends = np.ones((150, 1), np.bool_)
    tracker.update(np.arange(150, dtype=np.float32)[:, None], ends, ~ends, ends)
    assert tracker.mean_return == pytest.approx(np.arange(50, 150).mean())
    assert tracker.episodes == 150


def test_a_restored_tracker_continues_exactly() -> None:
    rng = np.random.default_rng(1)
    straight = EpisodeTracker(4)
    straight.update(*rollout(rng, 20, 4, 0.1, 1.0))
    resumed = EpisodeTracker(4)
    resumed.load({name: array.copy() for name, array in straight.state().items()})
    arrays = rollout(rng, 20, 4, 0.1, 1.0)
    a, b = straight.update(*arrays), resumed.update(*arrays)
    assert len(a) > 0
    for name in ("t", "env", "step", "returns", "length"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert straight.mean_return == resumed.mean_return


def test_state_is_a_copy() -> None:
    tracker = EpisodeTracker(2)
    state = tracker.state()
    false, true = np.zeros((1, 2), np.bool_), np.ones((1, 2), np.bool_)
    tracker.update(np.ones((1, 2), np.float32), false, false, true)
    assert state["return"].tolist() == [0.0, 0.0]


def test_state_of_another_env_count_is_refused() -> None:
    with pytest.raises(CheckpointError, match="the checkpoint has 3 envs, but this run has 2"):
        EpisodeTracker(2).load(EpisodeTracker(3).state())


def test_the_number_of_python_calls_does_not_depend_on_the_rollout() -> None:
    """The tracker runs in every iteration, so it may not make a Python call per row, env or episode."""
    rng, tracker = np.random.default_rng(0), EpisodeTracker(32)
    taken = set()
    for rows, ends in ((128, 0.03), (128, 0.5), (8, 0.5), (512, 0.01)):
        arrays = rollout(rng, rows, 32, ends, 1.0)
        taken.add(calls_of(partial(tracker.update, *arrays)))
    assert len(taken) == 1


def judged(*said: int) -> NDArray[np.int8]:
    """A column in which every step ends an episode."""
    return np.array(said, np.int8)[:, None]


def ends(tracker: EpisodeTracker, said: NDArray[np.int8] | None, steps: int) -> NDArray[np.int8]:
    shape = (steps, 1)
    no, yes = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
    return tracker.update(np.ones(shape, np.float32), yes, no, yes, success=said).success


def test_the_success_rate_is_of_the_last_hundred_episodes_that_the_env_judged() -> None:
    tracker = EpisodeTracker(1)
    assert ends(tracker, None, 3).tolist() == [0, 0, 0]
    assert tracker.success_rate is None
    assert ends(tracker, judged(SUCCEEDED, 0, FAILED, FAILED), 4).tolist() == [SUCCEEDED, 0, FAILED, FAILED]
    assert tracker.success_rate == pytest.approx(1 / 3)
    ends(tracker, judged(*[SUCCEEDED] * 98), 98)
    assert tracker.success_rate == 0.98, "the first success is forgotten"
    again = EpisodeTracker(1)
    again.load(tracker.state())
    assert again.success_rate == 0.98
    ends(again, judged(SUCCEEDED), 1)
    assert again.success_rate == 0.99
    older = tracker.state()
    del older["recent_success"]  # a checkpoint of an earlier version
    again.load(older)
    assert again.success_rate is None


def test_only_the_last_step_of_an_episode_says_whether_it_succeeded() -> None:
    tracker, said = EpisodeTracker(2), np.full((3, 2), SUCCEEDED, np.int8)
    end = np.zeros((3, 2), np.bool_)
    end[1, 1] = True
    said[1, 1] = FAILED
    tracker.update(np.ones((3, 2), np.float32), end, end & False, np.ones((3, 2), np.bool_), success=said)
    assert tracker.success_rate == 0.0

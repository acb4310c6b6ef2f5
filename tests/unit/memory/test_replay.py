"""The replay against a slow copy of its definition: lists of whole transitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.memory.replays import GAMMA, Story, arrays, filled, spec

from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape
from paceline.memory.rows import Row
from paceline.memory.sampling import PrioritisedSampler, UniformSampler
from paceline.spec import PLAIN


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    groups=st.integers(1, 3),
    size=st.integers(1, 3),
    rows=st.integers(8, 20),
    multi_step=st.integers(1, 3),
    stack=st.sampled_from([1, 3]),
    masked=st.booleans(),
    stints=st.lists(st.integers(1, 4), min_size=1, max_size=12),
)
def test_gathered_transitions_equal_the_played_ones(
    seed: int, groups: int, size: int, rows: int, multi_step: int, stack: int, masked: bool, stints: list[int]
) -> None:
    shape = ReplayShape(
        spec=spec(masked=masked, stack=stack), rows=rows, groups=groups, group_size=size, frame_stack=stack
    )
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA, multi_step=multi_step)
    story = Story(shape, replay, memory, seed)
    for count in stints:
        for group in range(groups):  # groups need not be equally far
            story.play(group, 1 + (count + group) % 4)
    if not replay.stored:
        return
    for group in range(groups):
        for env in range(group * size, (group + 1) * size):
            for row in range(int(replay.low[group]), int(replay.high[group])):
                item = np.array([row % rows * shape.n_envs + env])
                found, wanted = replay.gather(item), story.expected(env, row, multi_step)
                np.testing.assert_array_equal(found.obs[PLAIN][0], wanted["obs"])
                assert int(found.action[0]) == wanted["action"]
                assert float(found.reward[0]) == pytest.approx(wanted["return"], abs=1e-5)
                assert float(found.discount[0]) == pytest.approx(wanted["discount"], abs=1e-6)
                assert bool(replay.valid(item)[0]) == wanted["valid"]
                if wanted["discount"]:
                    np.testing.assert_array_equal(found.next_obs[PLAIN][0], wanted["last"]["next_obs"])
                    if masked:
                        np.testing.assert_array_equal(found.next_mask[0], wanted["last"]["next_mask"])  # type: ignore[index]


@pytest.mark.parametrize("stack", [1, 3])
def test_begin_at_starts_an_empty_replay_at_these_heads(stack: int) -> None:
    shape = ReplayShape(spec=spec(stack=stack), rows=12, groups=2, group_size=2, frame_stack=stack)
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA)
    replay.begin_at(np.array([30, 41]))
    assert replay.stored == 0
    story = Story(shape, replay, memory, 0)
    story.play(0, 5)
    story.play(1, 5)
    assert replay.low.tolist() == [30 + stack - 1, 41 + stack - 1]
    assert replay.high.tolist() == [35, 46]


def test_pad_moves_a_group_forward_and_keeps_its_current_observation() -> None:
    replay, story = filled()
    before = int(replay.head.max()) + 5
    everyone = np.arange(replay.shape.n_envs)
    shown, mask = replay.shown(everyone)
    for group in range(2):
        replay.pad(group, before)
    assert replay.head.tolist() == [before] * 2
    again, mask_again = replay.shown(everyone)
    np.testing.assert_array_equal(again[PLAIN], shown[PLAIN])
    np.testing.assert_array_equal(mask_again, mask)
    assert not replay.all_valid
    item, _ = UniformSampler(replay).draw(np.random.default_rng(0), 500, 0.0)
    assert replay.valid(item).all()
    del story

    empty = Replay(arrays(replay.shape), replay.shape, gamma=GAMMA)
    empty.pad(1, 7)
    assert (empty.head.tolist(), empty.stored, empty.all_valid) == ([0, 7], 0, True)


def test_rows_that_a_lost_writer_may_have_begun_are_not_read_again() -> None:
    replay, story = filled()
    group, rows = 0, 5
    start = int(replay.head[group])
    assert start > replay.shape.rows, "the ring has gone round"
    lost = Row.blank(replay.shape.spec, replay.shape.group_size)
    lost.obs[PLAIN][:] = -7.0
    for t in range(start, start + rows):
        story.writers[group].show(t, lost, np.zeros(replay.shape.group_size, np.int64))
    replay.exclude_overwritten(group, rows)
    story.play(group, 2)
    low, high = int(replay.low[group]), int(replay.high[group])
    assert high - low > 0
    columns = np.arange(replay.shape.n_envs)[replay.shape.columns(group, 1)]
    item = np.concatenate([t % replay.shape.rows * replay.shape.n_envs + columns for t in range(low, high)])
    found = replay.gather(item)
    assert not (found.obs[PLAIN] == -7.0).any()
    assert not (found.next_obs[PLAIN] == -7.0).any()


def test_a_restored_replay_and_sampler_draw_the_same_items() -> None:
    replay, _ = filled()
    sampler = PrioritisedSampler(replay, 0.7)
    for group in range(2):
        sampler.rows_added(group)
    sampler.update_priorities(sampler.draw(np.random.default_rng(0), 8, 1.0)[0], np.arange(8, dtype=np.float32))
    copy = Replay(arrays(replay.shape), replay.shape, gamma=GAMMA)
    other = PrioritisedSampler(copy, 0.7)
    copy.load({key: value.copy() for key, value in replay.state().items()})
    other.load(sampler.state())
    a, b = (one.draw(np.random.default_rng(3), 256, 0.5) for one in (sampler, other))
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_array_equal(a[1], b[1])
    first, second = replay.gather(a[0]), copy.gather(b[0])
    for name in ("action", "reward", "discount", "next_mask"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.next_obs[PLAIN], second.next_obs[PLAIN])

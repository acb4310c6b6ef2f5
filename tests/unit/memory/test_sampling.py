"""Uniform and prioritised sampling from the replay."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.memory.replays import GAMMA, Story, arrays, filled, spec

from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape
from paceline.memory.sampling import PrioritisedSampler, Sampler, UniformSampler


@pytest.mark.parametrize("stints", [1, 3, 9])
def test_samplers_draw_every_complete_row_and_no_other(stints: int) -> None:
    replay, story = filled(stints=stints, margin=3)
    samplers: list[Sampler] = [UniformSampler(replay), PrioritisedSampler(replay, 0.5)]
    for group in range(2):
        samplers[1].rows_added(group)
    able = {
        row % 12 * 4 + env
        for group in range(2)
        for env in (2 * group, 2 * group + 1)
        for row in range(int(replay.low[group]), int(replay.high[group]))
        if story.steps[env][row]["valid"]
    }
    # What is being written, and what the row before it needs, is left alone.
    assert (replay.low >= replay.head + 3 + 1 - 12).all()
    assert (replay.high <= replay.head).all()
    for sampler in samplers:
        item, _ = sampler.draw(np.random.default_rng(0), 4000, 1.0)
        assert set(item.tolist()) == able


def test_items_are_drawn_by_priority_and_weights_correct_the_bias() -> None:
    replay, _ = filled()
    sampler = PrioritisedSampler(replay, 1.0)
    for group in range(2):
        sampler.rows_added(group)
    some = np.unique(sampler.draw(np.random.default_rng(0), 4000, 1.0)[0])
    sampler.update_priorities(some, np.linspace(0.1, 2.0, len(some), dtype=np.float32))
    item, weight = sampler.draw(np.random.default_rng(1), 100_000, 1.0)
    often = np.array([np.mean(item == one) for one in some])
    np.testing.assert_allclose(
        often, np.linspace(0.1, 2.0, len(some)) / np.linspace(0.1, 2.0, len(some)).sum(), atol=2e-3
    )
    by_item = dict(zip(item.tolist(), weight.tolist(), strict=True))
    np.testing.assert_allclose(
        [by_item[i] * o for i, o in zip(some.tolist(), often, strict=True)], by_item[some[0]] * often[0], rtol=0.1
    )
    assert max(weight) == 1.0


def test_overwritten_rows_are_not_drawn_by_priority() -> None:
    replay, story = filled(stints=1)
    sampler = PrioritisedSampler(replay, 1.0)
    for group in range(2):
        sampler.rows_added(group)
    for _ in range(20):
        for group, rows in ((0, 3), (1, 2)):
            start = int(replay.head[group])
            story.play(group, rows)
            sampler.rows_added(group)
            item, _ = sampler.draw(np.random.default_rng(start), 500, 1.0)
            group_of = item % 4 // 2
            back = (replay.head[group_of] - 1 - item // 4) % 12
            assert (back < (replay.head - replay.low)[group_of]).all()


def test_groups_with_equal_heads_and_different_floors_are_sampled_within_their_ranges() -> None:
    shape = ReplayShape(spec=spec(), rows=64, groups=2, group_size=2)
    memory = arrays(shape)
    replay = Replay(memory, shape, gamma=GAMMA)
    replay.begin_at(np.array([30, 35]))
    story = Story(shape, replay, memory, 0)
    story.play(0, 10)
    story.play(1, 5)
    replay.all_valid = True  # then nobody looks
    item, _ = UniformSampler(replay).draw(np.random.default_rng(0), 1000, 0.0)
    group, row = item % 4 // 2, item // 4
    assert row[group == 0].min() < 35 <= row[group == 1].min()

"""Rows that travel from the ring buffer of a node to the replay buffer of the driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.memory.replays import GAMMA, Story, arrays, spec

from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ReplayShape, ReplayWriter
from paceline.memory.rows import Row
from paceline.runtime.ray.transfer import GroupRange, pack, unpack
from paceline.spec import PLAIN
from paceline.train.replay_transfer import _Ring

SIZE, GROUP = 2, 1
DRIVER = ReplayShape(spec=spec(), rows=12, groups=2, group_size=SIZE)
NODE = ReplayShape(spec=spec(), rows=7, groups=1, group_size=SIZE, first_group=GROUP)
"""The node has the second group only, and a shorter ring buffer."""


class Sides:
    def __init__(self) -> None:
        self.driver_arena: Any = arrays(DRIVER)
        self.node_arena: Any = arrays(NODE)
        self.driver = Replay(self.driver_arena, DRIVER, gamma=GAMMA)
        # The envs of a run on one machine write into `expected`; the test copies their rows to the node.
        self.expected_arena: Any = arrays(DRIVER)
        self.expected = Replay(self.expected_arena, DRIVER, gamma=GAMMA)
        self.story = Story(DRIVER, self.expected, self.expected_arena, 3)
        self.story.writers[GROUP] = self  # type: ignore[call-overload]
        self._writers = [
            ReplayWriter(self.expected_arena, DRIVER, GROUP, 1), ReplayWriter(self.node_arena, NODE, GROUP, 1),
        ]  # fmt: skip

    def show(self, *args: Any) -> None:
        for writer in self._writers:
            writer.show(*args)

    def write(self, *args: Any) -> None:
        for writer in self._writers:
            writer.write(*args)

    def add_final(self, *args: Any) -> None:
        for writer in self._writers:
            writer.add_final(*args)

    def collect(self, rows: int) -> None:
        start = int(self.driver.head[GROUP])
        self.story.play(GROUP, rows)
        node, driver = _Ring(self.node_arena, NODE), _Ring(self.driver_arena, DRIVER)
        if start == 0:  # as after a reset
            unpack(pack(node.shown(GROUP, 0, 1)), driver.shown(GROUP, 0, 1))
        buffer = pack(node.collected(GROUP, start, rows, driver=False))
        unpack(buffer, driver.collected(GROUP, start, rows, driver=True))
        self.driver.advance(GROUP, GROUP + 1, rows)


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_the_driver_samples_what_the_envs_of_a_node_have_done(rows: int) -> None:
    sides = Sides()
    columns = np.arange(SIZE) + GROUP * SIZE
    for _ in range(8):  # both ring buffers wrap around
        sides.collect(rows)
        head = int(sides.driver.head[GROUP])
        stored = range(max(0, head - DRIVER.rows + 2), head)
        item = np.concatenate([row % DRIVER.rows * DRIVER.n_envs + columns for row in stored])
        item = item[sides.expected.valid(item)]
        np.testing.assert_array_equal(sides.driver.valid(item), True)
        found, expected = sides.driver.gather(item), sides.expected.gather(item)
        for name in ("action", "reward", "discount"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        np.testing.assert_array_equal(found.obs[PLAIN], expected.obs[PLAIN])
        np.testing.assert_array_equal(found.next_obs[PLAIN], expected.next_obs[PLAIN])
    truncated = [step for steps in sides.story.steps for step in steps if step["ended"] and not step["terminated"]]
    assert truncated, "final observations were sent"


def test_views_are_split_where_the_range_wraps_around() -> None:
    ring = _Ring(Sides().node_arena, NODE)
    assert [len(view) for view in ring._rows("reward", GROUP, 5, 9)] == [2, 2]
    assert [len(view) for view in ring._rows("reward", GROUP, 7, 9)] == [2]


@pytest.mark.parametrize(("restarted", "ended"), [(None, [2, 3]), ([[3]], [3]), ([[]], [])])
def test_episodes_of_reset_envs_end_before_their_new_rows(restarted: Any, ended: list[int]) -> None:
    sides = Sides()
    writer = ReplayWriter(sides.driver_arena, DRIVER, GROUP, 1)
    row = Row.blank(DRIVER.spec, SIZE)
    row.valid[:] = True
    writer.show(0, row, np.zeros(SIZE, np.int64))
    writer.write(0, row)
    writer.show(1, row, np.ones(SIZE, np.int64))
    sides.driver.advance(GROUP, GROUP + 1, 1)
    before = sides.driver_arena["replay/flags"].copy()
    _Ring(sides.driver_arena, DRIVER).cut(GroupRange(GROUP, 1), sides.driver.head.tolist(), restarted)
    changed = np.flatnonzero((sides.driver_arena["replay/flags"] != before).any(0))
    assert changed.tolist() == ended

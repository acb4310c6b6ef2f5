"""Rows of the replay as a worker writes them, and their size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray
from tests.unit.memory.replays import GAMMA, arrays, cut, filled, spec

from paceline.memory.replay_rows import FINAL, TERMINATED, TRUNCATED, VALID, ReplayShape, ReplayWriter, rows_for
from paceline.memory.rows import Row
from paceline.spec import PLAIN, EnvSpec


def test_a_cut_ends_an_episode_as_a_truncation_with_its_last_observation() -> None:
    replay, story = filled(stints=2)
    env, head = 1, int(replay.head[0])
    story.steps[env][head - 1].update(ended=False, terminated=False, valid=True)
    replay._arrays["flags"][(head - 1) % 12, env] = VALID
    shown, mask = replay.shown(np.array([env]))
    cut(story, env)
    found = replay.gather(np.array([(head - 1) % 12 * 4 + env]))
    np.testing.assert_array_equal(found.next_obs[PLAIN], shown[PLAIN])
    np.testing.assert_array_equal(found.next_mask, mask)
    assert float(found.discount[0]) == pytest.approx(GAMMA)
    # It stays so when another episode begins there, and a second cut changes nothing.
    replay._arrays["obs/obs"][head % 12, env] = -7
    cut(story, env)
    np.testing.assert_array_equal(replay.gather(np.array([(head - 1) % 12 * 4 + env])).next_obs[PLAIN], shown[PLAIN])


def test_a_truncation_whose_last_observation_is_in_the_next_row_is_kept_by_a_cut() -> None:
    """So it is with vector envs that reset in the step after."""
    replay, story = filled(stints=2)
    env, head = 2, int(replay.head[1])
    replay._arrays["flags"][(head - 1) % 12, env] = VALID | TRUNCATED
    shown, _ = replay.shown(np.array([env]))
    cut(story, env)
    replay._arrays["obs/obs"][head % 12, env] = -7  # another episode begins there
    found = replay.gather(np.array([(head - 1) % 12 * 4 + env]))
    np.testing.assert_array_equal(found.next_obs[PLAIN], shown[PLAIN])


def test_frames_are_stored_once_and_bytes_are_what_is_documented() -> None:
    image = EnvSpec.of(spaces.Box(0, 255, (84, 84, 4), np.uint8), spaces.Discrete(6))
    shape = ReplayShape(spec=image, rows=125_000, groups=1, group_size=8, frame_stack=4)
    # One frame, action, reward, flags, age and the place of a last observation.
    each = 84 * 84 + 8 + 4 + 1 + 1 + 4
    assert shape.nbytes() == 1_000_000 * each
    assert rows_for(shape.nbytes(), shape, in_bytes=True) == 125_000
    assert rows_for(1_000_000, shape, in_bytes=False) == 125_000


def writer(**changes: Any) -> tuple[ReplayWriter, dict[str, NDArray[Any]], ReplayShape]:
    """A writer of group 1 of two groups with two envs each, in a ring of 6 rows."""
    shape = ReplayShape(**{"spec": spec(masked=False), "rows": 6, "groups": 2, "group_size": 2, **changes})
    memory = arrays(shape)
    return ReplayWriter(memory, shape, shape.first_group + 1, 1), memory, shape


def row_of(shape: ReplayShape, number: float) -> Row:
    row = Row.blank(shape.spec, 2)
    row.obs[PLAIN][:], row.action[:], row.reward[:], row.valid[:] = number, 1, number, True
    return row


@pytest.mark.parametrize("first_group", [0, 7])
def test_a_writer_writes_only_its_own_columns_and_wraps_around(first_group: int) -> None:
    write, memory, shape = writer(first_group=first_group)
    for t in range(8):
        write.show(t, row_of(shape, t), np.zeros(2, np.int64))
        write.write(t, row_of(shape, t))
    assert memory["replay/reward"].tolist() == [[0, 0, t, t] for t in (6, 7, 2, 3, 4, 5)]
    assert memory["replay/obs/obs"][:, 2, 0].tolist() == [6, 7, 2, 3, 4, 5]
    assert (memory["replay/flags"][:, 2:] == VALID).all()
    assert not memory["replay/flags"][:, :2].any()


def test_a_cut_sets_the_flags_that_end_n_step_returns() -> None:
    write, memory, shape = writer()
    for t in range(2):
        write.show(t, row_of(shape, t), np.zeros(2, np.int64))
        write.write(t, row_of(shape, t))
    write.cut(1, 0)
    assert memory["replay/flags"][0, 2:].tolist() == [VALID | TRUNCATED | FINAL, VALID]
    assert memory["replay/final_count"].tolist() == [0, 1]


@pytest.mark.parametrize(("t", "flags"), [(0, VALID), (1, VALID | TERMINATED), (1, VALID | TRUNCATED | FINAL), (1, 0)])
def test_a_cut_changes_nothing_where_no_episode_was_lost(t: int, flags: int) -> None:
    write, memory, _ = writer()
    memory["replay/flags"][(t - 1) % 6, 2] = flags
    write.cut(t, 0)
    assert memory["replay/flags"][(t - 1) % 6, 2] == flags
    assert not memory["replay/final_count"].any()


def test_only_the_newest_frame_and_the_age_of_an_episode_are_stored() -> None:
    write, memory, shape = writer(spec=spec(masked=False, stack=3), frame_stack=3)
    row = row_of(shape, 0.0)
    row.obs[PLAIN][:] = [1, 1, 2, 2, 3, 3]
    write.show(0, row, np.array([0, 9]))
    assert memory["replay/obs/obs"].shape == (6, 4, 2)
    assert memory["replay/obs/obs"][0, 2:].tolist() == [[3, 3], [3, 3]]
    assert memory["replay/age"][0, 2:].tolist() == [0, 2], "an older episode needs no larger age"


def test_initial_priorities_are_written_only_if_the_replay_has_them() -> None:
    write, memory, _ = writer(priorities=True)
    write.surprise(5, np.array([[1, 2], [3, 4]], np.float32))
    assert memory["replay/priority"][[5, 0], 2:].tolist() == [[1, 2], [3, 4]]
    assert not memory["replay/priority"][:, :2].any()
    without, memory, _ = writer()
    without.surprise(5, np.ones((2, 2), np.float32))
    assert "replay/priority" not in memory

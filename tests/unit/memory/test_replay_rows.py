"""Rows of the replay as a worker writes them, and their size."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from tests.unit.memory.replays import GAMMA, cut, filled

from paceline.memory.replay_rows import TRUNCATED, VALID, ReplayShape, rows_for
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

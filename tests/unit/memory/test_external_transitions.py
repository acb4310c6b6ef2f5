"""A trajectory that was collected elsewhere, laid out as rows of the replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from paceline.errors import ConfigError
from paceline.memory.external_transitions import ExternalRows, external_rows
from paceline.memory.replay_rows import ReplayShape
from paceline.spec import MASK_KEY, EnvSpec


def shape(*, masked: bool = False, start: int = 0, **changes: Any) -> ReplayShape:
    spec = EnvSpec.of(spaces.Box(-99, 99, (1,), np.float32), spaces.Discrete(3, start=start), masked=masked)
    return ReplayShape(**{"spec": spec, "rows": 20, "groups": 2, "group_size": 3, **changes})


def trajectory(length: int, *, terminated_at: int | None = None) -> list[tuple[Any, ...]]:
    """Transition t leads from observation t to t + 1, with action t % 3 and reward 10 t."""
    return [(np.array([t]), t % 3, 10.0 * t, np.array([t + 1]), t == terminated_at) for t in range(length)]


def column(found: ExternalRows, index: int, name: str) -> list[float]:
    """A field of the valid rows of one column."""
    rows = [row for row in found.rows if row.valid[index]]
    return [float((row.obs["obs"][:, 0] if name == "obs" else getattr(row, name))[index]) for row in rows]


def test_a_trajectory_is_split_into_one_piece_per_column() -> None:
    found = external_rows(trajectory(7), shape(), 0)
    assert [column(found, index, "obs") for index in range(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [column(found, index, "reward") for index in range(3)] == [[0, 10, 20], [30, 40, 50], [60]]
    assert [column(found, index, "truncated") for index in range(3)] == [[0, 0, 1], [0, 0, 1], [1]]
    assert [(t, at, last["obs"].tolist()) for t, at, last in found.finals] == [(2, 0, [3]), (2, 1, [6]), (0, 2, [7])]


def test_a_termination_needs_no_last_observation() -> None:
    found = external_rows(trajectory(6, terminated_at=5), shape(group_size=1), 0)
    assert column(found, 0, "terminated") == [0, 0, 0, 0, 0, 1]
    assert column(found, 0, "truncated") == [0] * 6
    assert found.finals == []


def test_a_gap_in_the_observations_ends_a_piece() -> None:
    first, second = trajectory(2), trajectory(4)[2:]
    gap = [*first, (np.array([50]), 0, 0.0, np.array([51]), False), *second]
    found = external_rows(gap, shape(group_size=1), 0)
    assert column(found, 0, "truncated") == [0, 1, 1, 0, 1]
    assert [(t, last["obs"].tolist()) for t, _, last in found.finals] == [(1, [2]), (2, [51]), (4, [4])]


def test_groups_take_trajectories_in_turn() -> None:
    assert [external_rows(trajectory(1), shape(), number).group for number in range(4)] == [0, 1, 0, 1]


def test_actions_are_stored_from_zero() -> None:
    found = external_rows([(np.array([0]), 5, 0.0, np.array([1]), True)], shape(start=4, group_size=1), 0)
    assert column(found, 0, "action") == [1]


def test_masks_are_stored_with_rows_and_last_observations() -> None:
    step = (np.array([0]), 0, 0.0, np.array([1]), False, [True, False, True], [False, False, True])
    found = external_rows([step], shape(masked=True, group_size=1), 0)
    [row] = found.rows
    assert row.mask is not None
    assert row.mask.tolist() == [[True, False, True]]
    [(_, _, last)] = found.finals
    assert list(last[MASK_KEY]) == [False, False, True]


@pytest.mark.parametrize(
    ("steps", "changes", "text"),
    [
        (trajectory(1), {"frame_stack": 4}, "needs frame_stack=1.*got 4"),
        ([(0, 0, 0.0, 0)], {}, "next_obs, terminated\\) \\(got one with 4 entries"),
        (trajectory(1), {"masked": True}, "mask, next_mask\\) \\(got one with 5 entries"),
        (trajectory(31), {}, "31 steps exceed half of the replay \\(120 transitions\\)"),
        ([(np.zeros(4), 0, 0.0, np.zeros(4), False)], {}, "transition 0 does not match the env's spaces"),
        ([(np.zeros(1), 3, 0.0, np.zeros(1), False)], {}, "transition 0 has action 3, outside"),
        ([(np.zeros(1), -1, 0.0, np.zeros(1), False)], {}, "transition 0 has action -1, outside"),
    ],
)
def test_what_does_not_fit_is_refused(steps: Any, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"add_trajectory: .*{text}"):
        external_rows(steps, shape(**changes), 0)

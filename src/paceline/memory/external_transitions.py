"""Lays out external transitions (a trajectory collected elsewhere) as rows of one group of the replay.

    trajectory  s0 s1 s2 s3 s4 s5 s6          columns  | s0 | s3 | s6 |
                                                       | s1 | s4 | -- |
                                                       | s2 | s5 | -- |

A group has several columns: a trajectory is split into as many pieces. It is also split where a transition does not
start at the previous one's `next_obs`. Each piece ends as a truncation that stores its next observation, so learning is
the same as from the whole trajectory, except that n-step returns stop at the end of a piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import ConfigError
from paceline.memory.replay_rows import ReplayShape
from paceline.memory.rows import Row
from paceline.spec import MASK_KEY

ExternalTransitions = Sequence[Sequence[Any]]
"""(obs, action, reward, next_obs, terminated) each, where actions are masked also (mask, next_mask)."""


@dataclass(frozen=True, slots=True)
class ExternalRows:
    """A trajectory laid out as rows of one group."""

    group: int
    rows: list[Row]
    finals: list[tuple[int, int, dict[str, NDArray[Any]]]]
    """(row, column, next observation) of pieces that end without terminating."""


def external_rows(transitions: ExternalTransitions, shape: ReplayShape, number: int) -> ExternalRows:
    """Lay out a trajectory as rows of one group.

    Args:
        transitions: (obs, action, reward, next_obs, terminated), with masks (..., mask, next_mask).
        shape: Shape of the replay.
        number: Number of trajectories added before; they go to the groups round-robin.

    Raises:
        ConfigError: A transition does not match the env's spaces, or the trajectory is too long for the replay.
    """
    spec, columns = shape.spec, shape.group_size
    if shape.frame_stack > 1:
        raise ConfigError(
            f"add_trajectory: needs frame_stack=1, because the replay stores single frames (got {shape.frame_stack})."
        )
    entries = 7 if spec.masked else 5
    if wrong := [len(one) for one in transitions if len(one) != entries]:
        form = "(obs, action, reward, next_obs, terminated" + (", mask, next_mask)" if spec.masked else ")")
        raise ConfigError(f"add_trajectory: every transition must be {form} (got one with {wrong[0]} entries).")
    length = -(-len(transitions) // columns)
    if length > shape.rows // 2:
        raise ConfigError(
            f"add_trajectory: {len(transitions)} steps exceed half of the replay ({shape.items} transitions). Split "
            "the trajectory, or raise buffer_size."
        )
    rows = [Row.blank(spec, columns) for _ in range(length)]
    finals = []
    for at, one in enumerate(transitions):
        column, t = divmod(at, length)
        obs, action, reward, next_obs, terminated, *masks = one
        row = rows[t]
        try:
            for name, leaf in spec.split(obs).items():
                row.obs[name][column] = leaf
            row.action[column], row.reward[column] = int(action) - spec.action.start, reward
            last = {name: np.array(leaf, row.obs[name].dtype) for name, leaf in spec.split(next_obs).items()}
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError(f"add_trajectory: transition {at} does not match the env's spaces ({error}).") from error
        if not 0 <= row.action[column] < spec.action.nvec[0]:
            raise ConfigError(f"add_trajectory: transition {at} has action {action}, outside the action space.")
        row.valid[column], row.terminated[column] = True, bool(terminated)
        if masks and row.mask is not None:
            row.mask[column], last[MASK_KEY] = masks
        continues = t < length - 1 and at + 1 < len(transitions) and _same(spec.split(transitions[at + 1][0]), last)
        if not terminated and not continues:
            row.truncated[column] = True
            finals.append((t, column, last))
    return ExternalRows(number % shape.groups, rows, finals)


def _same(obs: dict[str, Any], last: dict[str, NDArray[Any]]) -> bool:
    """Return whether an observation equals the `next_obs` of the previous transition."""
    return all(np.array_equal(np.asarray(leaf, last[name].dtype), last[name]) for name, leaf in obs.items())

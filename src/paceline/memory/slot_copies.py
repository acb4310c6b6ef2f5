"""Copies rollouts into another set of slots, to other machines, and into checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.memory.slots import Slots


def copy_rollout(source: Slots, into: Slots) -> None:
    """Copy a whole rollout to another set of slots of the same shape."""
    copy_columns(source, slice(0, source.shape.n_envs), into, 0)


def copy_columns(source: Slots, columns: slice, into: Slots, at: int) -> int:
    """Copy some columns, whole groups, to column `at` of another set; returns the column after them."""
    size = into.shape.group_size
    end = at + int(columns.stop - columns.start)
    for name, field in into.arrays.items():
        if not name.startswith("final"):
            field[:, at:end] = source.arrays[name][:, columns]
    for group, source_group in enumerate(range(columns.start // size, columns.stop // size), at // size):
        count = int(source.arrays["final_count"][source_group])
        for name in _final_names(into):
            into.arrays[name][group, :count] = source.arrays[name][source_group, :count]
        into.arrays["final_at"][group, :count, 1] += at - columns.start
        into.arrays["final_count"][group] = count
    return end


def parts_of(slots: Slots, first_group: int, groups: int) -> Iterator[NDArray[Any]]:
    """Yield views of everything that some groups have collected: the counts first, then only as many final entries."""
    columns, first = slots.shape.columns(first_group, groups), first_group - slots.shape.first_group
    for name, field in slots.arrays.items():
        if not name.startswith("final"):
            yield field[:, columns]
    counts = slots.arrays["final_count"][first : first + groups]
    yield counts
    for group, count in enumerate(counts, first):
        for name in _final_names(slots) if count else ():
            yield slots.arrays[name][group, :count]


def slots_state(slots: Slots) -> dict[str, NDArray[Any]]:
    """Return the rollout as plain arrays, for a checkpoint."""
    longest, finals = int(slots.arrays["final_count"].max()), _final_names(slots)
    return {name: field[:, :longest].copy() if name in finals else field for name, field in slots.arrays.items()}


def load_slots(slots: Slots, state: dict[str, NDArray[Any]]) -> None:
    """Restore what `slots_state` returned."""
    finals = _final_names(slots)
    for name, value in state.items():
        field = slots.arrays[name]
        np.copyto(field[:, : value.shape[1]] if name in finals else field, value)


def _final_names(slots: Slots) -> list[str]:
    return ["final_at", "final_value", *(f"final_obs/{leaf.name}" for leaf in slots.shape.spec.obs)]

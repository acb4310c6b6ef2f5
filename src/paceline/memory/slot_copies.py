"""Copies of whole rollouts: into another set of slots, and into checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.memory.slots import Slots


def copy_rollout(source: Slots, into: Slots) -> None:
    """Copy a whole rollout to another set."""
    for name, field in into.arrays().items():
        if not name.startswith("final"):
            np.copyto(field, source.array(name))
    for group, count in enumerate(source.array("final_count")):
        for name in _final_names(into):
            into.array(name)[group, :count] = source.array(name)[group, :count]
    into.array("final_count")[:] = source.array("final_count")


def copy_columns(source: Slots, columns: slice, into: Slots, at: int) -> int:
    """Copy some columns to column `at` of another set; returns the column after them."""
    size = into.shape.group_size
    end = at + int(columns.stop - columns.start)
    for name, field in into.arrays().items():
        if not name.startswith("final"):
            field[:, at:end] = source.array(name)[:, columns]
    for group, own in enumerate(range(columns.start // size, columns.stop // size), at // size):
        count = int(source.array("final_count")[own])
        for name in _final_names(into):
            into.array(name)[group, :count] = source.array(name)[own, :count]
        into.array("final_at")[group, :count, 1] += at - columns.start
        into.array("final_count")[group] = count
    return end


def parts_of(slots: Slots, first_group: int, groups: int) -> Iterator[NDArray[Any]]:
    """All that some groups have collected, as views: counts before what they count, and no more of that."""
    columns, first = slots.shape.columns(first_group, groups), first_group - slots.shape.first_group
    for name, field in slots.arrays().items():
        if not name.startswith("final"):
            yield field[:, columns]
    counts = slots.array("final_count")[first : first + groups]
    yield counts
    for group, count in enumerate(counts, first):
        for name in _final_names(slots) if count else ():
            yield slots.array(name)[group, :count]


def slots_state(slots: Slots) -> dict[str, NDArray[Any]]:
    """The rollout as plain arrays, for a checkpoint."""
    longest, finals = int(slots.array("final_count").max()), _final_names(slots)
    return {name: field[:, :longest].copy() if name in finals else field for name, field in slots.arrays().items()}


def load_slots(slots: Slots, state: dict[str, NDArray[Any]]) -> None:
    """Take over `slots_state`."""
    finals = _final_names(slots)
    for name, value in state.items():
        field = slots.array(name)
        np.copyto(field[:, : value.shape[1]] if name in finals else field, value)


def _final_names(slots: Slots) -> list[str]:
    return ["final_at", "final_value", *(f"final_obs/{leaf.name}" for leaf in slots.shape.spec.obs)]

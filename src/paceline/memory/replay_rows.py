"""Layout of the replay buffer, and the writer with which a worker fills its own columns. See `replay`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.memory.rows import Row
from paceline.memory.shared import Arrays, Field
from paceline.spec import FAILED, MASK_KEY, SUCCEEDED, EnvSpec, Leaf

TERMINATED, TRUNCATED, VALID, FINAL = 1, 2, 4, 8
"""Bits of `flags`; those of `Row.success` follow from `SUCCESS_SHIFT` on. FINAL means that the last observation of a
truncated episode is stored in `final_obs`."""
SUCCESS_SHIFT = 4
FLAGS = (FAILED | SUCCEEDED) + 1 << SUCCESS_SHIFT
"""All combinations of flags are below this."""
ENDED = TERMINATED | TRUNCATED
PREFIX = "replay/"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayShape:
    """Sizes of a replay."""

    spec: EnvSpec
    rows: int
    """R: rows of the ring buffer."""
    groups: int
    group_size: int
    frame_stack: int = 1
    """Frames per observation, of which only the newest is stored."""
    priorities: bool = False
    """Whether workers provide the initial priorities of their transitions."""
    first_group: int = 0
    """First group stored here: not 0 on a cluster node, which stores only a part of the run's groups."""

    @property
    def n_envs(self) -> int:
        """Columns (B)."""
        return self.groups * self.group_size

    def columns(self, first_group: int, groups: int) -> slice:
        """Return the columns of some groups, which are numbered as in the whole run."""
        start = (first_group - self.first_group) * self.group_size
        return slice(start, start + groups * self.group_size)

    @property
    def items(self) -> int:
        """Capacity in transitions."""
        return self.rows * self.n_envs

    def frame(self, leaf: Leaf) -> tuple[int, ...]:
        """Return the stored shape of a leaf (one frame)."""
        if self.frame_stack == 1:
            return leaf.shape
        return (*leaf.shape[:-1], leaf.shape[-1] // self.frame_stack)

    def fields(self) -> Iterator[Field]:
        """Return the arena fields of the replay."""
        lead = (self.rows, self.n_envs)
        # Sparse: pages are allocated as the ring fills, so a run that ends early never uses all of them.
        for leaf in self.spec.obs:
            yield Field.of(f"{PREFIX}obs/{leaf.name}", (*lead, *self.frame(leaf)), leaf.dtype, sparse=True)
        if self.spec.masked:
            yield Field.of(f"{PREFIX}mask", (*lead, self.spec.action.mask_size), np.bool_, sparse=True)
        yield Field.of(f"{PREFIX}action", (*lead, *self.spec.action.shape), self.spec.action.dtype, sparse=True)
        yield Field.of(f"{PREFIX}reward", lead, np.float32, sparse=True)
        for name in self.spec.reward_parts:
            yield Field.of(f"{PREFIX}told/{name}", lead, np.float32, sparse=True)
        yield Field.of(f"{PREFIX}flags", lead, np.uint8, sparse=True)
        if self.frame_stack > 1:
            yield Field.of(f"{PREFIX}age", lead, np.uint8, sparse=True)
        if self.priorities:
            yield Field.of(f"{PREFIX}priority", lead, np.float32, sparse=True)
        # Every step might truncate its episode, so there is an entry for each; sparse, because few do.
        room = self.rows * self.group_size
        yield Field.of(f"{PREFIX}final_at", lead, np.int32, sparse=True)
        yield Field.of(f"{PREFIX}final_count", (self.groups,), np.int64)
        for leaf in self.spec.obs:
            shape = (self.groups, room, *self.frame(leaf))
            yield Field.of(f"{PREFIX}final_obs/{leaf.name}", shape, leaf.dtype, sparse=True)
        if self.spec.masked:
            yield Field.of(
                f"{PREFIX}final_mask", (self.groups, room, self.spec.action.mask_size), np.bool_, sparse=True
            )

    def nbytes(self) -> int:
        """Bytes of a full ring, without the last observations of truncated episodes."""
        apart = ("final_obs", "final_mask", "final_count")
        return sum(field.nbytes for field in self.fields() if not field.name.removeprefix(PREFIX).startswith(apart))


def rows_for(buffer: int, shape: ReplayShape, *, in_bytes: bool) -> int:
    """Return the number of rows for a capacity.

    Args:
        buffer: Capacity in transitions or bytes.
        shape: Replay shape with any number of rows.
        in_bytes: Whether `buffer` is in bytes.
    """
    each = shape.nbytes() // shape.rows if in_bytes else shape.n_envs
    return buffer // each


class ReplayWriter:
    """Writes a worker's columns of the replay.

    Args:
        arena: Shared memory.
        shape: Sizes.
        first_group: First group of the worker.
        groups: Number of its groups.
    """

    def __init__(self, arena: Arrays, shape: ReplayShape, first_group: int, groups: int) -> None:
        mine = shape.columns(first_group, groups)
        self._rows, self._size = shape.rows, shape.group_size
        self._first_group = first_group - shape.first_group  # index in this arena
        self._obs = [
            (leaf.name, arena[f"{PREFIX}obs/{leaf.name}"][:, mine], _newest(leaf, shape)) for leaf in shape.spec.obs
        ]
        self._mask = arena[f"{PREFIX}mask"][:, mine] if shape.spec.masked else None
        self._action, self._reward, self._flags = (
            arena[f"{PREFIX}{name}"][:, mine] for name in ("action", "reward", "flags")
        )
        self._reward_parts = {name: arena[f"{PREFIX}told/{name}"][:, mine] for name in shape.spec.reward_parts}
        self._age = arena[f"{PREFIX}age"][:, mine] if shape.frame_stack > 1 else None
        self._oldest_age = shape.frame_stack - 1
        self._priority = arena[f"{PREFIX}priority"][:, mine] if shape.priorities else None
        self._final_at, self._final_count = arena[f"{PREFIX}final_at"][:, mine], arena[f"{PREFIX}final_count"]
        self._final_obs = {leaf.name: arena[f"{PREFIX}final_obs/{leaf.name}"] for leaf in shape.spec.obs}
        self._final_mask = arena[f"{PREFIX}final_mask"] if shape.spec.masked else None

    def show(self, t: int, row: Row, age: NDArray[np.int64]) -> None:
        """Write the observations of row t, and the age of their episodes in steps."""
        at = t % self._rows
        for name, column, newest in self._obs:
            column[at] = row.obs[name] if newest is None else row.obs[name][newest]
        if self._mask is not None:
            self._mask[at] = row.mask
        if self._age is not None:
            self._age[at] = np.minimum(age, self._oldest_age)

    def write(self, t: int, row: Row) -> None:
        """Write actions, rewards and flags of row t."""
        at = t % self._rows
        self._action[at] = row.action
        self._reward[at] = row.reward
        for name, column in self._reward_parts.items():
            column[at] = row.reward_parts[name]
        flags = row.valid * np.uint8(VALID)
        flags |= row.terminated
        flags |= row.truncated * np.uint8(TRUNCATED)
        flags |= row.success.view(np.uint8) << SUCCESS_SHIFT
        self._flags[at] = flags

    def add_final(self, t: int, column: int, obs: dict[str, NDArray[Any]]) -> None:
        """Store the last observation of an episode that was truncated in row t; call it after `write`."""
        frames = {name: obs[name] if newest is None else obs[name][newest[1:]] for name, _, newest in self._obs}
        self._keep_final(t, column, frames, obs.get(MASK_KEY, True))

    def cut(self, t: int, column: int) -> None:
        """Turn the row before t into a truncation, because the env's episode was lost and a new one starts in row t.

        Row t still holds the last observation of the lost episode. Does nothing if the row before already ended an
        episode with a stored last observation, or is not valid.
        """
        before, at = (t - 1) % self._rows, t % self._rows
        flags = self._flags[before, column]
        # A truncation without FINAL has its last observation in row t too: a vector env with NEXT_STEP autoreset.
        if t == 0 or flags & (TERMINATED | FINAL) or not flags & VALID:
            return
        self._flags[before, column] |= TRUNCATED
        shown = {name: rows[at, column] for name, rows, _ in self._obs}
        self._keep_final(t - 1, column, shown, True if self._mask is None else self._mask[at, column])

    def _keep_final(self, t: int, column: int, frames: dict[str, NDArray[Any]], mask: Any) -> None:
        group = self._first_group + column // self._size
        entry = int(self._final_count[group]) % (self._rows * self._size)
        for name, frame in frames.items():
            self._final_obs[name][group, entry] = frame
        if self._final_mask is not None:
            self._final_mask[group, entry] = mask
        self._final_at[t % self._rows, column] = entry
        self._flags[t % self._rows, column] |= FINAL
        self._final_count[group] += 1

    def surprise(self, t: int, priority: NDArray[np.float32]) -> None:
        """Write the initial priorities of rows t to t + T, [T, n]."""
        if self._priority is not None:
            self._priority[np.arange(t, t + len(priority)) % self._rows] = priority


def _newest(leaf: Leaf, shape: ReplayShape) -> tuple[Any, ...] | None:
    """Return the index of the newest frame in a row of stacked observations; None if observations are stored whole."""
    return None if shape.frame_stack == 1 else (slice(None), ..., slice(-shape.frame(leaf)[-1], None))

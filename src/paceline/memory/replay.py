"""Replay buffer: ring buffers of rows in shared memory, one column per env. Workers write, the learner reads.

    row      obs [R, B, ...]  action [R, B]  reward  flags         group 0 | group 1 | ...
    head-1   written
    head     current observation of the envs                       each group has its own head: rows written so far
    head+1   the oldest row that is left, R rows back

A transition is a row and the next row of the same column, so each observation is stored once, not again as `next_obs`.
Of stacked frames only the newest is stored. Each group has one writer, so there are no locks: rows become readable when
the worker reports them and the driver advances the head. A row that a dying worker has half written is therefore never
read, and its replacement overwrites it.

Items for sampling are numbered `(row % R) * B + env`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.batch import Transitions
from paceline.memory.replay_rows import ENDED, FINAL, FLAGS, PREFIX, TERMINATED, VALID, ReplayShape, ReplayWriter
from paceline.memory.rows import Row
from paceline.memory.shared import Arrays
from paceline.spec import Leaf


class Replay:
    """The learner's view: all columns. Lives in the driver, which owns the heads.

    Args:
        arena: Shared memory, or plain arrays.
        shape: Sizes.
        gamma: Discount.
        multi_step: n of n-step returns.
        margin: Rows beyond the heads that workers may be writing.
    """

    def __init__(
        self, arena: Arrays, shape: ReplayShape, *, gamma: float, multi_step: int = 1, margin: int = 0
    ) -> None:
        self.shape, self._multi_step, self._margin = shape, multi_step, margin
        self._arrays = {field.name.removeprefix(PREFIX): arena[field.name] for field in shape.fields()}
        self.head = np.zeros(shape.groups, np.int64)
        """[groups] rows written so far."""
        self._floor = np.zeros(shape.groups, np.int64)  # [groups] first row that is stored here
        self._flat = {
            name: array.reshape(-1, *array.shape[2:])
            for name, array in self._arrays.items()
            if not name.startswith("final_") or name == "final_at"
        }
        self._discounts = np.float32(gamma) ** np.arange(multi_step + 1, dtype=np.float32)
        by_flags = np.arange(FLAGS, dtype=np.uint8) & TERMINATED
        self._next_discount = np.where(by_flags, np.float32(0.0), np.float32(gamma))  # of one step, by its flags
        self._bounds()
        self.all_valid = True
        """True until a row is stored that is not valid (a vector env's reset row)."""

    def _bounds(self) -> None:
        """Recompute which rows can be sampled, after a head has moved."""
        kept = self.head + self._margin + self.shape.frame_stack - self.shape.rows
        # Stacked observations of the first rows after a floor would need frames from before it.
        floor = np.where(self._floor, self._floor + self.shape.frame_stack - 1, 0)
        self.low = np.maximum(kept, floor)
        """[groups] oldest row that can be sampled."""
        self.high = np.maximum(self.head - self._multi_step + 1, self.low)
        """[groups] one past the newest row that can be sampled."""
        self.level = bool((self.head == self.head[0]).all() and (self.low == self.low[0]).all())
        """Whether the same rows of all groups can be sampled."""
        self.full = bool((kept > floor).all())
        """Whether new rows overwrite old ones."""

    @property
    def stored(self) -> int:
        """Number of transitions that can be sampled."""
        return int((self.high - self.low).sum()) * self.shape.group_size

    def rows(self, name: str, start: int, stop: int, columns: slice) -> NDArray[Any]:
        """Return rows of a field, as a copy."""
        # One fancy index: slicing the columns first and then taking rows would copy the slice.
        taken: NDArray[Any] = self._arrays[name][np.arange(start, stop) % self.shape.rows, columns]
        return taken

    def advance(self, first: int, stop: int, rows: int) -> NDArray[np.uint8]:
        """Advance the heads of groups `first` to `stop` (exclusive), whose writers are at the same row, by `rows` rows.

        Returns:
            [rows, columns] flags of those rows.
        """
        start = int(self.head[first])
        columns = self.shape.columns(first, stop - first)
        flags = self.rows("flags", start, start + rows, columns)
        self.all_valid = self.all_valid and bool((flags & VALID).all())
        self.head[first:stop] = start + rows
        self._bounds()
        return flags

    def insert(
        self, group: int, rows: Sequence[Row], finals: Sequence[tuple[int, int, dict[str, NDArray[Any]]]]
    ) -> None:
        """Write rows of one group at its head, in place of its writer, which must be idle.

        Args:
            group: Index of the group.
            rows: Rows with all columns of the group.
            finals: (row, column, last observation) of episodes that these rows truncate.
        """
        start, age = int(self.head[group]), np.zeros(self.shape.group_size, np.int64)
        arena = {PREFIX + name: array for name, array in self._arrays.items()}
        writer = ReplayWriter(arena, self.shape, group, 1)
        for column in range(self.shape.group_size):
            writer.cut(start, column)
        shown = self._shown(group)
        for t, row in enumerate(rows, start):
            writer.show(t, row, age)
            writer.write(t, row)
        for t, column, obs in finals:
            writer.add_final(start + t, column, obs)
        self._show(group, start + len(rows), shown)  # the current episodes continue from there
        self.advance(group, group + 1, len(rows))

    def _shown(self, group: int) -> dict[str, NDArray[Any]]:
        """Return the current observations of a group's envs, in stored form."""
        at, columns = int(self.head[group]) % self.shape.rows, self.shape.columns(group, 1)
        fields = [name for name in self._arrays if name in ("mask", "age") or name.startswith("obs/")]
        return {name: self._arrays[name][at, columns].copy() for name in fields}

    def _show(self, group: int, row: int, shown: dict[str, NDArray[Any]]) -> None:
        for name, values in shown.items():
            self._arrays[name][row % self.shape.rows, self.shape.columns(group, 1)] = values

    def shown(self, envs: NDArray[np.int64]) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_] | None]:
        """Return the current observations (by leaf) and masks of some envs."""
        item = (self.head[envs // self.shape.group_size] % self.shape.rows) * self.shape.n_envs + envs
        obs = {leaf.name: self._observe(leaf, item) for leaf in self.shape.spec.obs}
        return obs, self._flat["mask"].take(item, axis=0) if self.shape.spec.masked else None

    def gather(self, item: NDArray[np.int64]) -> Transitions:
        """Return transitions by item number, as new arrays."""
        shape, flat = self.shape, self._flat
        flags = flat["flags"].take(item)
        reward = flat["reward"].take(item)
        last, steps = item, None
        for step in range(1, self._multi_step):
            if steps is None:
                steps = np.ones(len(item), np.int64)
            on = np.flatnonzero((flags & ENDED) == 0)
            if not len(on):
                break
            if last is item:
                last = item.copy()
            last[on] = after = (last[on] + shape.n_envs) % shape.items
            flags[on] = flat["flags"].take(after)
            reward[on] += self._discounts[step] * flat["reward"].take(after)
            steps[on] += 1
        discount = self._next_discount.take(flags)
        if steps is not None:
            discount *= self._discounts.take(steps - 1)
        after = last + shape.n_envs  # may exceed the last row: every `take` below wraps around
        obs = {leaf.name: self._observe(leaf, item) for leaf in shape.spec.obs}
        next_obs = {leaf.name: self._observe(leaf, after) for leaf in shape.spec.obs}
        next_mask = flat["mask"].take(after, axis=0, mode="wrap") if shape.spec.masked else None
        if len(finals := np.flatnonzero(flags & FINAL)):
            self._put_finals(last[finals], finals, next_obs, next_mask)
        if next_mask is not None:
            # Terminal rows have discount 0, so their next action does not matter; unmask it so that argmax is defined.
            next_mask[(flags & TERMINATED) != 0] = True
        return Transitions(obs, flat["action"].take(item), reward, discount, next_obs, next_mask)

    def valid(self, item: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which items are valid: the reset rows of a vector env are not."""
        counts: NDArray[np.bool_] = (self._flat["flags"].take(item) & VALID) != 0
        return counts

    def pad(self, group: int, head: int) -> None:
        """Move a group's head forward over rows that are not valid; its writer must be idle."""
        if self.head[group] == self._floor[group]:  # nothing is stored, so no padding rows are needed
            self._show(group, head, self._shown(group))
            self.head[group] = self._floor[group] = head
            self._bounds()
            return
        blank = Row.blank(self.shape.spec, self.shape.group_size)  # not valid
        self.insert(group, [blank] * (head - int(self.head[group])), [])

    def exclude_overwritten(self, group: int, rows: int) -> None:
        """Exclude the oldest rows, which a lost writer may have overwritten with up to `rows` unreported rows."""
        self._floor[group] = max(int(self._floor[group]), int(self.head[group]) + rows + 1 - self.shape.rows)
        self._bounds()

    def begin_at(self, head: NDArray[np.int64]) -> None:
        """Continue counting from these heads, with an empty replay."""
        self.head[:] = self._floor[:] = head
        self._bounds()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything stored, for a checkpoint."""
        used = int(min(self.shape.rows, self.head.max() + 1))
        state: dict[str, NDArray[Any]] = {"head": self.head.copy(), "all_valid": np.array(self.all_valid)}
        state["floor"] = self._floor.copy()
        entries = int(min(self._arrays["final_count"].max(), self.shape.rows * self.shape.group_size))
        for name, array in self._arrays.items():
            if name == "final_count":
                state[name] = array.copy()
            elif name.startswith(("final_obs", "final_mask")):
                state[name] = array[:, :entries].copy()
            else:
                state[name] = array[:used].copy()
        return state

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self.head[:], self._floor[:] = state["head"], state["floor"]
        self._bounds()
        self.all_valid = bool(state["all_valid"])
        for name, array in self._arrays.items():
            if name.startswith(("final_obs", "final_mask")):
                array[:, : state[name].shape[1]] = state[name]
            else:
                array[: len(state[name])] = state[name]

    def _observe(self, leaf: Leaf, item: NDArray[np.int64]) -> NDArray[Any]:
        """Return whole observations, rebuilt from single frames if frames are stacked."""
        flat = self._flat[f"obs/{leaf.name}"]
        taken: NDArray[Any]
        if self.shape.frame_stack == 1:
            taken = flat.take(item, axis=0, mode="wrap")
            return taken
        age = self._flat["age"].take(item, mode="wrap")
        frames = [flat.take(self._back(item, age, k), axis=0, mode="wrap") for k in self._frames()]
        return np.concatenate(frames, axis=-1)

    def _frames(self) -> range:
        """Return how many rows back each frame of an observation lies, oldest first."""
        return range(self.shape.frame_stack - 1, -1, -1)

    def _back(self, item: NDArray[np.int64], age: NDArray[np.uint8], frames: int) -> NDArray[np.int64]:
        """Return the items `frames` rows earlier, but not before the first row of the episode."""
        return item - np.minimum(age, frames).astype(np.int64) * self.shape.n_envs

    def _put_finals(
        self,
        last: NDArray[np.int64],
        at: NDArray[np.int64],
        next_obs: dict[str, NDArray[Any]],
        next_mask: NDArray[np.bool_] | None,
    ) -> None:
        """Overwrite `next_obs` and `next_mask` of truncated episodes with the episode's own last observation."""
        group = last % self.shape.n_envs // self.shape.group_size
        entry = self._flat["final_at"].take(last)
        for leaf in self.shape.spec.obs:
            final = self._arrays[f"final_obs/{leaf.name}"][group, entry]
            if self.shape.frame_stack > 1:
                age, flat = self._flat["age"].take(last), self._flat[f"obs/{leaf.name}"]
                # The frames of the previous row, without the oldest.
                before = [flat.take(self._back(last, age, k - 1), axis=0, mode="wrap") for k in self._frames() if k]
                final = np.concatenate([*before, final], axis=-1)
            next_obs[leaf.name][at] = final
        if next_mask is not None:
            next_mask[at] = self._arrays["final_mask"][group, entry]

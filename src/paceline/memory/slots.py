"""Where a rollout is written and read: the same arrays as rows for a worker, as a Trajectory for the learner.

obs [T+1, B, ...]      worker 0 | worker 1 | worker 2        a group's slot is its G columns;
action [T, B, ...]     g0 g1 g2 | g3 g4 g5 | g6 g7           a worker owns the columns of its groups
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.batch import Finals, Trajectory
from paceline.memory.rows import Row
from paceline.memory.shared import Arrays, Field
from paceline.spec import EnvSpec


@dataclass(frozen=True, slots=True)
class SlotShape:
    """The sizes of a rollout: T steps of `groups` groups of `group_size` envs."""

    spec: EnvSpec
    n_steps: int
    groups: int
    group_size: int
    first_group: int = 0
    """The first group that is held here: not 0 where a machine holds a part of the run's groups only."""

    @property
    def n_envs(self) -> int:
        """Envs, and so columns (B)."""
        return self.groups * self.group_size

    def columns(self, first_group: int, groups: int) -> slice:
        """Where some groups, numbered as in the whole run, are held."""
        start = (first_group - self.first_group) * self.group_size
        return slice(start, start + groups * self.group_size)

    def fields(self, name: str = "") -> Iterator[Field]:
        """What an arena must hold for the set of slots of this name."""
        for field in self._fields():
            yield replace(field, name=name + field.name)

    def _fields(self) -> Iterator[Field]:
        steps, envs, spec = self.n_steps, self.n_envs, self.spec
        for leaf in spec.obs:
            yield Field.of(f"obs/{leaf.name}", (steps + 1, envs, *leaf.shape), leaf.dtype)
        if spec.masked:
            yield Field.of("mask", (steps + 1, envs, spec.action.mask_size), np.bool_)
        yield Field.of("action", (steps, envs, *spec.action.shape), spec.action.dtype)
        for name in ("reward", "log_prob"):
            yield Field.of(name, (steps, envs), np.float32)
        for name in ("terminated", "truncated", "valid"):
            yield Field.of(name, (steps, envs), np.bool_)
        yield Field.of("value", (steps + 1, envs), np.float32)
        # Every step of every env could be a truncation, so there is room for all; sparse, because few are.
        room = steps * self.group_size
        yield Field.of("final_count", (self.groups,), np.int64)
        yield Field.of("final_at", (self.groups, room, 2), np.int64, sparse=True)
        yield Field.of("final_value", (self.groups, room), np.float32, sparse=True)
        for leaf in spec.obs:
            yield Field.of(f"final_obs/{leaf.name}", (self.groups, room, *leaf.shape), leaf.dtype, sparse=True)


class Slots:
    """One set of slots in an arena.

    Args:
        arena: Shared memory.
        shape: Sizes.
        name: Of the set, as given to `SlotShape.fields`.
    """

    def __init__(self, arena: Arrays, shape: SlotShape, name: str = "") -> None:
        self.shape = shape
        self._arena = {field.name: arena[name + field.name] for field in shape.fields()}

    def rows(self, first_group: int, groups: int) -> list[Row]:
        """The T+1 rows of a worker's own columns."""
        mine, last = self.shape.columns(first_group, groups), self.shape.n_steps - 1
        arena, spec = self._arena, self.shape.spec

        def row(t: int) -> Row:
            act = min(t, last)
            return Row(
                obs={leaf.name: arena[f"obs/{leaf.name}"][t, mine] for leaf in spec.obs},
                mask=arena["mask"][t, mine] if spec.masked else None,
                value=arena["value"][t, mine],
                **{
                    name: arena[name][act, mine]
                    for name in ("action", "reward", "terminated", "truncated", "valid", "log_prob")
                },
            )

        return [row(t) for t in range(self.shape.n_steps + 1)]

    def final_slot(self, group: int) -> FinalSlot:
        """Where a group keeps the last observations of truncated episodes."""
        arena, group = self._arena, group - self.shape.first_group
        return FinalSlot(
            count=arena["final_count"][group : group + 1],
            at=arena["final_at"][group],
            value=arena["final_value"][group],
            obs={leaf.name: arena[f"final_obs/{leaf.name}"][group] for leaf in self.shape.spec.obs},
        )

    def parts(self, first_group: int, groups: int) -> Iterator[NDArray[Any]]:
        """All that some groups have collected, as views: counts before what they count, and no more of that."""
        columns, first = self.shape.columns(first_group, groups), first_group - self.shape.first_group
        for name, field in self._arena.items():
            if not name.startswith("final"):
                yield field[:, columns]
        counts = self._arena["final_count"][first : first + groups]
        yield counts
        for group, count in enumerate(counts, first):
            for name in self._final_names() if count else ():
                yield self._arena[name][group, :count]

    def array(self, name: str) -> NDArray[Any]:
        """A whole field, all columns: for statistics in the driver."""
        return self._arena[name]

    def shown(self) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_] | None]:
        """What the envs show after the rollout: observations by leaf, and masks."""
        obs = {leaf.name: self._arena[f"obs/{leaf.name}"][-1] for leaf in self.shape.spec.obs}
        return obs, self._arena["mask"][-1] if self.shape.spec.masked else None

    def take_over(self, other: Slots) -> None:
        """Copy a whole rollout from another set."""
        for name, field in self._arena.items():
            if not name.startswith("final"):
                np.copyto(field, other.array(name))
        for group, count in enumerate(other.array("final_count")):
            for name in self._final_names():
                self._arena[name][group, :count] = other.array(name)[group, :count]
        self._arena["final_count"][:] = other.array("final_count")

    def put(self, other: Slots, columns: slice, at: int) -> int:
        """Copy some columns of another set to column `at` of this one; returns the column after them."""
        size = self.shape.group_size
        end = at + int(columns.stop - columns.start)
        for name, field in self._arena.items():
            if not name.startswith("final"):
                field[:, at:end] = other.array(name)[:, columns]
        for group, source in enumerate(range(columns.start // size, columns.stop // size), at // size):
            count = int(other.array("final_count")[source])
            for name in self._final_names():
                self._arena[name][group, :count] = other.array(name)[source, :count]
            self._arena["final_at"][group, :count, 1] += at - columns.start
            self._arena["final_count"][group] = count
        return end

    def state(self) -> dict[str, NDArray[Any]]:
        """The rollout as plain arrays, for a checkpoint."""
        longest = int(self._arena["final_count"].max())
        finals = set(self._final_names())
        return {name: field[:, :longest].copy() if name in finals else field for name, field in self._arena.items()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over `state()`."""
        finals = set(self._final_names())
        for name, value in state.items():
            field = self._arena[name]
            np.copyto(field[:, : value.shape[1]] if name in finals else field, value)

    def _final_names(self) -> list[str]:
        return ["final_at", "final_value", *(f"final_obs/{leaf.name}" for leaf in self.shape.spec.obs)]

    def trajectory(self, version: int) -> Trajectory:
        """The rollout as the learner reads it: views, except for the few final observations."""
        spec = self.shape.spec
        view = {
            name: torch.from_numpy(self._arena[name])
            for name in ("action", "reward", "terminated", "truncated", "valid", "log_prob", "value")
        }
        return Trajectory(
            obs={leaf.name: torch.from_numpy(self._arena[f"obs/{leaf.name}"]) for leaf in spec.obs},
            mask=torch.from_numpy(self._arena["mask"]) if spec.masked else None,
            finals=self._finals(),
            version=version,
            **view,
        )

    def samples(self) -> Samples:
        """The T rows of all envs as single steps, in the order of `[T, B]`: views."""

        def rows(name: str) -> torch.Tensor:
            return torch.from_numpy(self._arena[name][: self.shape.n_steps]).flatten(0, 1)

        return Samples(
            obs={leaf.name: rows(f"obs/{leaf.name}") for leaf in self.shape.spec.obs},
            mask=rows("mask") if self.shape.spec.masked else None,
            action=rows("action"),
        )

    def _finals(self) -> Finals:
        used = [(group, int(n)) for group, n in enumerate(self._arena["final_count"]) if n]

        def gather(name: str) -> torch.Tensor:
            field = self._arena[name]
            parts = [field[group, :n] for group, n in used] or [field[0, :0]]
            return torch.from_numpy(np.concatenate(parts))

        at = gather("final_at")
        obs = {leaf.name: gather(f"final_obs/{leaf.name}") for leaf in self.shape.spec.obs}
        return Finals(t=at[:, 0], env=at[:, 1], obs=obs, value=gather("final_value"))


@dataclass(frozen=True, slots=True)
class Samples:
    """What the network sees and did, by single step."""

    obs: dict[str, torch.Tensor]  # [T*B, *leaf]
    mask: torch.Tensor | None  # [T*B, M]
    action: torch.Tensor  # [T*B, *act]

    def to(self, device: torch.device) -> Samples:
        """A copy on a device."""
        return Samples(
            {name: leaf.to(device) for name, leaf in self.obs.items()},
            None if self.mask is None else self.mask.to(device),
            self.action.to(device),
        )


@dataclass(frozen=True, slots=True)
class FinalSlot:
    """The entries of one group; `add` is called by the worker that owns it."""

    count: NDArray[np.int64]  # [1]
    at: NDArray[np.int64]  # [room, 2]  (t, env of the whole batch)
    value: NDArray[np.float32]  # [room]
    obs: dict[str, NDArray[Any]]  # [room, *leaf]

    def add(self, t: int, env: int, obs: dict[str, Any]) -> None:
        """Keep the last real observation of an episode that was truncated in row t."""
        entry = int(self.count[0])
        self.at[entry] = t, env
        for name, leaf in self.obs.items():
            leaf[entry] = obs[name]
        self.count[0] = entry + 1

"""Sizes of a rollout, and the arena fields that hold it (a set of slots)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from paceline.memory.shared import Field
from paceline.spec import EnvSpec


@dataclass(frozen=True, slots=True)
class SlotShape:
    """The sizes of a rollout: T steps of `groups` groups of `group_size` envs."""

    spec: EnvSpec
    n_steps: int
    groups: int
    group_size: int
    first_group: int = 0
    """First group stored here: not 0 on a cluster node, which stores only a part of the run's groups."""

    @property
    def n_envs(self) -> int:
        """Number of envs, and so of columns (B)."""
        return self.groups * self.group_size

    def columns(self, first_group: int, groups: int) -> slice:
        """Return the columns of some groups, which are numbered as in the whole run."""
        start = (first_group - self.first_group) * self.group_size
        return slice(start, start + groups * self.group_size)

    def fields(self, name: str = "") -> Iterator[Field]:
        """Return the arena fields of the set of slots with this name."""
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
        yield Field.of("success", (steps, envs), np.int8)
        yield Field.of("value", (steps + 1, envs), np.float32)
        for name, extra in spec.extras.items():
            yield Field.of(f"extra/{name}", (steps + 1, envs, *extra.shape), np.dtype(extra.dtype))
        for name in spec.reward_parts:
            yield Field.of(f"told/{name}", (steps, envs), np.float32)
        # Every step of every env could be a truncation, so there is an entry for each; sparse, because few are.
        room = steps * self.group_size
        yield Field.of("final_count", (self.groups,), np.int64)
        yield Field.of("final_at", (self.groups, room, 2), np.int64, sparse=True)
        yield Field.of("final_value", (self.groups, room), np.float32, sparse=True)
        for leaf in spec.obs:
            yield Field.of(f"final_obs/{leaf.name}", (self.groups, room, *leaf.shape), leaf.dtype, sparse=True)

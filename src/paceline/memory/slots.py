"""Slots store a rollout: a worker writes the arrays as rows, and the learner reads them as a Trajectory.

obs [T+1, B, ...]      worker 0 | worker 1 | worker 2        a group's slot is its G columns;
action [T, B, ...]     g0 g1 g2 | g3 g4 g5 | g6 g7           a worker owns the columns of its groups
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.batch import Finals, Outcome, Trajectory
from paceline.memory.rows import Row
from paceline.memory.shared import Arrays
from paceline.memory.slot_shape import SlotShape
from paceline.spec import ENV_REWARD

COMMON_FIELDS = ("action", "reward", "terminated", "truncated", "valid", "log_prob", "value")
"""Fields that rows and trajectories take over from the slots unchanged, one array each."""


class Slots:
    """One set of slots in an arena.

    Args:
        arena: Shared memory.
        shape: Sizes.
        name: Name of the set, as passed to `SlotShape.fields`.
    """

    def __init__(self, arena: Arrays, shape: SlotShape, name: str = "") -> None:
        self.shape = shape
        self.arrays = {field.name: arena[name + field.name] for field in shape.fields()}
        """All fields by name, whole: for statistics in the driver, and for copies (`slot_copies`)."""
        self._tensors = {name: torch.from_numpy(field) for name, field in self.arrays.items()}

    def columns(self, first_group: int, groups: int) -> Row:
        """Return a worker's own columns, all rows: `[T, n, ...]`, or `[T+1, n, ...]` for fields that row T has too."""
        mine, arena, spec = self.shape.columns(first_group, groups), self.arrays, self.shape.spec
        return Row(
            obs={leaf.name: arena[f"obs/{leaf.name}"][:, mine] for leaf in spec.obs},
            mask=arena["mask"][:, mine] if spec.masked else None,
            extras={name: arena[f"extra/{name}"][:, mine] for name in spec.extras},
            reward_parts={name: arena[f"told/{name}"][:, mine] for name in spec.reward_parts},
            **{name: arena[name][:, mine] for name in (*COMMON_FIELDS, "success")},
        )

    def rows(self, first_group: int, groups: int) -> list[Row]:
        """Return the T+1 rows of a worker's own columns."""
        whole, last = self.columns(first_group, groups), self.shape.n_steps - 1
        return [whole.at(t, min(t, last)) for t in range(last + 2)]

    def final_slot(self, group: int) -> FinalSlot:
        """Return where a group stores the last observations of truncated episodes."""
        arena, group = self.arrays, group - self.shape.first_group
        return FinalSlot(
            count=arena["final_count"][group : group + 1],
            at=arena["final_at"][group],
            value=arena["final_value"][group],
            obs={leaf.name: arena[f"final_obs/{leaf.name}"][group] for leaf in self.shape.spec.obs},
        )

    def outcome(self, columns: slice = slice(None)) -> Outcome:
        """Return rewards and episode ends of the rollout, for statistics."""
        reward_parts = {name: self.arrays[f"told/{name}"][:, columns] for name in self.shape.spec.reward_parts}
        reward, terminated, truncated, valid, success = (
            self.arrays[name][:, columns] for name in ("reward", "terminated", "truncated", "valid", "success")
        )
        return Outcome(reward_parts.pop(ENV_REWARD, reward), terminated, truncated, valid, success, reward_parts)

    def extras(self) -> dict[str, NDArray[Any]]:
        """Return the extras [T+1, B, ...] by name: arrays read beside the observations."""
        return {name: self.arrays[f"extra/{name}"] for name in self.shape.spec.extras}

    def shown(self) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_] | None]:
        """Return the observations (by leaf) and masks after the last step of the rollout."""
        obs = {leaf.name: self.arrays[f"obs/{leaf.name}"][-1] for leaf in self.shape.spec.obs}
        return obs, self.arrays["mask"][-1] if self.shape.spec.masked else None

    def trajectory(self, version: int) -> Trajectory:
        """Return the rollout as the learner reads it: views, except for the few final observations."""
        spec, view = self.shape.spec, self._tensors
        return Trajectory(
            obs={leaf.name: view[f"obs/{leaf.name}"] for leaf in spec.obs},
            mask=view["mask"] if spec.masked else None,
            finals=self._finals(),
            version=version,
            extras={name: view[f"extra/{name}"] for name in spec.extras},
            **{name: view[name] for name in COMMON_FIELDS},
        )

    def samples(self) -> Samples:
        """Return the T rows of all envs flattened to single steps, in the order of `[T, B]`: views."""

        def rows(name: str) -> torch.Tensor:
            return self._tensors[name][: self.shape.n_steps].flatten(0, 1)

        return Samples(
            obs={leaf.name: rows(f"obs/{leaf.name}") for leaf in self.shape.spec.obs},
            mask=rows("mask") if self.shape.spec.masked else None,
            action=rows("action"),
        )

    def _finals(self) -> Finals:
        used = [(group, int(n)) for group, n in enumerate(self.arrays["final_count"]) if n]

        def gather(name: str) -> NDArray[Any]:
            field = self.arrays[name]
            return np.concatenate([field[group, :n] for group, n in used] or [field[0, :0]])

        t, env = (torch.from_numpy(column) for column in gather("final_at").T)
        obs = {leaf.name: torch.from_numpy(gather(f"final_obs/{leaf.name}")) for leaf in self.shape.spec.obs}
        return Finals(t=t, env=env, obs=obs, value=torch.from_numpy(gather("final_value")))


@dataclass(frozen=True, slots=True)
class Samples:
    """Observations, masks and actions of single steps."""

    obs: dict[str, torch.Tensor]  # [T*B, *leaf]
    mask: torch.Tensor | None  # [T*B, M]
    action: torch.Tensor  # [T*B, *act]

    def to(self, device: torch.device) -> Samples:
        """Return a copy on a device."""
        return Samples(
            {name: leaf.to(device) for name, leaf in self.obs.items()},
            None if self.mask is None else self.mask.to(device),
            self.action.to(device),
        )


@dataclass(frozen=True, slots=True)
class FinalSlot:
    """Last observations of one group's truncated episodes; only the worker that owns the group calls `add`."""

    count: NDArray[np.int64]  # [1]
    at: NDArray[np.int64]  # [room, 2]  (t, env of the whole batch)
    value: NDArray[np.float32]  # [room]
    obs: dict[str, NDArray[Any]]  # [room, *leaf]

    def add(self, t: int, env: int, obs: dict[str, Any]) -> None:
        """Store the last observation of an episode that was truncated in row t."""
        entry = int(self.count[0])
        self.at[entry] = t, env
        for name, leaf in self.obs.items():
            leaf[entry] = obs[name]
        self.count[0] = entry + 1

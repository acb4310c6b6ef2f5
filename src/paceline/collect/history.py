"""The actions of every env's episode under way: what it takes to put an env back where it was.

Kept by the driver, so that it outlives any worker. An env is restored by resetting it with the seed of its
episode and replaying these actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.group import History
from paceline.memory.slots import Slots


@dataclass(frozen=True, slots=True)
class _Border:
    """What all envs show between two rollouts."""

    episode: NDArray[np.int64]  # [B]
    obs: dict[str, NDArray[Any]]  # [B, *leaf]
    mask: NDArray[np.bool_] | None  # [B, M]

    def copy(self) -> _Border:
        """One that stays."""
        obs = {name: leaf.copy() for name, leaf in self.obs.items()}
        return _Border(self.episode.copy(), obs, None if self.mask is None else self.mask.copy())


class EpisodeHistory:
    """Actions since the last reset, per env."""

    def __init__(self, slots: Slots, episode: NDArray[np.int64]) -> None:
        """Begin with no episode under way.

        Args:
            slots: Where rollouts appear.
            episode: The number of each env's episode; written by the workers.
        """
        self._slots, self._episode = slots, episode
        self._parts: list[list[NDArray[Any]]] = [[] for _ in range(slots.shape.n_envs)]
        self._marked = self._now()

    def extend(self) -> None:
        """Take in the rollout that was just collected."""
        action, valid = self._slots.array("action"), self._slots.array("valid")
        ended = self._slots.array("terminated") | self._slots.array("truncated")
        steps = len(ended)
        any_end = ended.any(0)
        last_end = steps - 1 - ended[::-1].argmax(0)
        all_valid = bool(valid.all())
        for env, parts in enumerate(self._parts):
            start = int(last_end[env]) + 1 if any_end[env] else 0
            if any_end[env]:
                parts.clear()
            if start < steps:
                column = action[start:, env]
                parts.append(column.copy() if all_valid else column[valid[start:, env]])

    def mark(self) -> None:
        """A rollout begins: keep what its workers will write over."""
        self._marked = self._now().copy()

    def marked(self) -> list[History]:
        """Each env's episode when the rollout under way began."""
        return self._histories(self._marked)

    def snapshot(self) -> list[History]:
        """Each env's episode so far, and the observation it ends with."""
        return self._histories(self._now())

    def _now(self) -> _Border:
        shape = self._slots.shape
        return _Border(
            self._episode,
            {leaf.name: self._slots.array(f"obs/{leaf.name}")[-1] for leaf in shape.spec.obs},
            self._slots.array("mask")[-1] if shape.spec.masked else None,
        )

    def _histories(self, border: _Border) -> list[History]:
        action = self._slots.shape.spec.action
        empty = np.empty((0, *action.shape), action.dtype)
        return [
            History(
                episode=int(border.episode[env]),
                actions=np.concatenate([empty, *parts]),
                obs={name: leaf[env].copy() for name, leaf in border.obs.items()},
                mask=None if border.mask is None else border.mask[env].copy(),
            )
            for env, parts in enumerate(self._parts)
        ]

    def state(self) -> dict[str, NDArray[Any]]:
        """The snapshot as plain arrays, for a checkpoint."""
        histories = self.snapshot()
        state: dict[str, NDArray[Any]] = {
            "episode": np.array([h.episode for h in histories]),
            "length": np.array([len(h.actions) for h in histories]),
            "actions": np.concatenate([h.actions for h in histories]),
        }
        for name in histories[0].obs:
            state[f"obs/{name}"] = np.stack([h.obs[name] for h in histories])
        if (masks := [h.mask for h in histories if h.mask is not None]) != []:
            state["mask"] = np.stack(masks)
        return state

    def load(self, state: dict[str, NDArray[Any]]) -> list[History]:
        """Take over a checkpoint's histories; returns them for the workers to restore."""
        ends = np.cumsum(state["length"])
        actions = np.split(state["actions"], ends[:-1])
        self._parts = [[part] for part in actions]
        return [
            History(
                episode=int(state["episode"][env]),
                actions=part,
                obs={leaf.name: state[f"obs/{leaf.name}"][env] for leaf in self._slots.shape.spec.obs},
                mask=state["mask"][env] if "mask" in state else None,
            )
            for env, part in enumerate(actions)
        ]

    def forget(self, envs: list[int]) -> None:
        """These envs began a new episode instead of being restored."""
        for env in envs:
            self._parts[env] = []

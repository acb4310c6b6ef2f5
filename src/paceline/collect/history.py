"""The actions of every env's episode under way: what it takes to put an env back where it was.

Kept by the driver, so that it outlives any worker. An env is restored by resetting it with the seed of its
episode and replaying these actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.group import History
from paceline.memory.slots import Slots


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

    def snapshot(self) -> list[History]:
        """Each env's episode so far, and the observation it ends with."""
        shape = self._slots.shape
        empty = np.empty((0, *shape.spec.action.shape), shape.spec.action.dtype)
        obs = {leaf.name: self._slots.array(f"obs/{leaf.name}")[-1] for leaf in shape.spec.obs}
        mask = self._slots.array("mask")[-1] if shape.spec.masked else None
        return [
            History(
                episode=int(self._episode[env]),
                actions=np.concatenate([empty, *parts]),
                obs={name: leaf[env].copy() for name, leaf in obs.items()},
                mask=None if mask is None else mask[env].copy(),
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

"""Action history of every env's current episode, from which a replaced worker or a resumed run restores the env.

To restore an env, a worker resets it with the seed of its episode and replays these actions. The driver owns the
history, so it survives the death of any worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import History
from paceline.memory.parts import part, under
from paceline.spec import EnvSpec

Shown = tuple[dict[str, NDArray[Any]], NDArray[np.bool_] | None]
"""Current observations [B, *leaf] of all envs, by leaf, and their action masks [B, M]."""


class EpisodeHistory:
    """The actions of each env since its last reset."""

    def __init__(
        self,
        spec: EnvSpec,
        episode: NDArray[np.int64],
        shown: Callable[[], Shown],
        tags: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Start with empty histories.

        Args:
            spec: Spec of the env.
            episode: [B] episode number of each env; workers write it.
            shown: Returns the current observations and masks of all envs. Called only while no env is being stepped.
            tags: [B, ...] each; other data of each env's episode, such as the opponent in self-play. Workers write it.
        """
        self._spec, self._episode, self._shown, self._tags = spec, episode, shown, tags or {}
        self._parts: list[list[NDArray[Any]]] = [[] for _ in range(len(episode))]
        self._marked, self._under_way = self._now(), False

    def extend(
        self, action: NDArray[Any], ended: NDArray[np.bool_], valid: NDArray[np.bool_], *, first_env: int = 0
    ) -> None:
        """Append the latest steps of n envs, and drop the actions of episodes that ended in them.

        Args:
            action: [T, n, *act]
            ended: [T, n] whether the episode ended with this step, terminated or truncated.
            valid: [T, n] False where the env only reset in this step; such an action was not executed.
            first_env: The env of column 0.
        """
        self._under_way = False
        steps, envs = ended.shape
        any_end: NDArray[np.bool_] = np.logical_or.reduce(ended, 0)
        last_end = steps - 1 - ended[::-1].argmax(0)
        all_valid = bool(valid.all())
        for env, parts in enumerate(self._parts[first_env : first_env + envs]):
            start = int(last_end[env]) + 1 if any_end[env] else 0
            if any_end[env]:
                parts.clear()
            if start < steps:
                column = action[start:, env]
                parts.append(column.copy() if all_valid else column[valid[start:, env]])

    def mark(self) -> None:
        """Copy the state that workers overwrite during the rollout that begins now."""
        self._marked, self._under_way = self._now(), True

    def marked(self) -> list[History]:
        """The history of each env as of the start of the current rollout."""
        return self._histories(self._marked)

    def _now(self) -> dict[str, NDArray[Any]]:
        """Copies of what workers overwrite, [B, ...] each, by their names in a checkpoint."""
        obs, mask = self._shown()
        views = {"episode": self._episode, **under("obs/", obs), **under("tag/", self._tags)}
        if mask is not None:
            views["mask"] = mask
        return {name: view.copy() for name, view in views.items()}

    def _actions(self) -> list[NDArray[Any]]:
        """The actions of each env's current episode."""
        action = self._spec.action
        empty = np.empty((0, *action.shape), action.dtype)
        return [np.concatenate([empty, *parts]) for parts in self._parts]

    def _histories(self, arrays: Mapping[str, NDArray[Any]]) -> list[History]:
        obs, tags, mask = part(arrays, "obs/"), part(arrays, "tag/"), arrays.get("mask")
        return [
            History(
                episode=int(arrays["episode"][env]),
                actions=actions,
                obs={name: leaf[env].copy() for name, leaf in obs.items()},
                mask=None if mask is None else mask[env].copy(),
                tags={name: tag[env].copy() for name, tag in tags.items()},
            )
            for env, actions in enumerate(self._actions())
        ]

    def state(self) -> dict[str, NDArray[Any]]:
        """The history of each env up to now, or up to the start of a rollout that is under way, for a checkpoint."""
        actions = self._actions()
        lengths = np.array([len(each) for each in actions])
        arrays = self._marked if self._under_way else self._now()
        return {**arrays, "length": lengths, "actions": np.concatenate(actions)}

    def load(self, state: dict[str, NDArray[Any]]) -> list[History]:
        """Load a checkpoint's histories; returns them, so that workers can restore their envs."""
        self._under_way = False
        self._parts = [[actions] for actions in np.split(state["actions"], np.cumsum(state["length"])[:-1])]
        return self._histories(state)

    def start_next_episodes(self, envs: list[int]) -> None:
        """Advance these envs to their next episode numbers. Call it only while no worker steps them."""
        self._episode[envs] += 1

    def forget(self, envs: list[int]) -> None:
        """Clear the actions of envs that started a new episode because they could not be restored."""
        for env in envs:
            self._parts[env] = []

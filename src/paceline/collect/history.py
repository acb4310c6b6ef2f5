"""Action history of every env's current episode, from which a replaced worker or a resumed run restores the env.

To restore an env, a worker resets it with the seed of its episode and replays these actions. The driver owns the
history, so it survives the death of any worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import History
from paceline.spec import EnvSpec

Shown = tuple[dict[str, NDArray[Any]], NDArray[np.bool_] | None]
"""Current observations [B, *leaf] of all envs, by leaf, and their action masks [B, M]."""


@dataclass(frozen=True, slots=True)
class _Border:
    """State of all envs between two rollouts."""

    episode: NDArray[np.int64]  # [B]
    obs: dict[str, NDArray[Any]]  # [B, *leaf]
    mask: NDArray[np.bool_] | None  # [B, M]
    tags: Mapping[str, NDArray[Any]]  # [B, ...]

    def copy(self) -> _Border:
        """A deep copy, which workers cannot overwrite."""
        obs = {name: leaf.copy() for name, leaf in self.obs.items()}
        tags = {name: tag.copy() for name, tag in self.tags.items()}
        return _Border(self.episode.copy(), obs, None if self.mask is None else self.mask.copy(), tags)


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
        self._marked = self._now()

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
        self._marked = self._now().copy()

    def marked(self) -> list[History]:
        """The history of each env as of the start of the current rollout."""
        return self._histories(self._marked)

    def snapshot(self) -> list[History]:
        """The history of each env up to now, with its latest observation."""
        return self._histories(self._now())

    def _now(self) -> _Border:
        return _Border(self._episode, *self._shown(), self._tags)

    def _histories(self, border: _Border) -> list[History]:
        action = self._spec.action
        empty = np.empty((0, *action.shape), action.dtype)
        return [
            History(
                episode=int(border.episode[env]),
                actions=np.concatenate([empty, *parts]),
                obs={name: leaf[env].copy() for name, leaf in border.obs.items()},
                mask=None if border.mask is None else border.mask[env].copy(),
                tags={name: tag[env].copy() for name, tag in border.tags.items()},
            )
            for env, parts in enumerate(self._parts)
        ]

    def state(self) -> dict[str, NDArray[Any]]:
        """The snapshot as arrays, for a checkpoint."""
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
        return state | {f"tag/{name}": tag.copy() for name, tag in self._tags.items()}

    def load(self, state: dict[str, NDArray[Any]]) -> list[History]:
        """Load a checkpoint's histories; returns them, so that workers can restore their envs."""
        ends = np.cumsum(state["length"])
        actions = np.split(state["actions"], ends[:-1])
        self._parts = [[part] for part in actions]
        return [
            History(
                episode=int(state["episode"][env]),
                actions=part,
                obs={leaf.name: state[f"obs/{leaf.name}"][env] for leaf in self._spec.obs},
                mask=state["mask"][env] if "mask" in state else None,
                tags={name: state[f"tag/{name}"][env] for name in self._tags},
            )
            for env, part in enumerate(actions)
        ]

    def start_next_episodes(self, envs: list[int]) -> None:
        """Advance these envs to their next episode numbers. Call it only while no worker steps them."""
        self._episode[envs] += 1

    def forget(self, envs: list[int]) -> None:
        """Clear the actions of envs that started a new episode because they could not be restored."""
        for env in envs:
            self._parts[env] = []

"""The actions of every env's episode under way: what it takes to put an env back where it was.

Kept by the driver, so that it outlives any worker. An env is restored by resetting it with the seed of its
episode and replaying these actions.
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
"""What all envs show: observations [B, *leaf] by leaf, and masks [B, M]."""


@dataclass(frozen=True, slots=True)
class _Border:
    """What all envs show between two rollouts."""

    episode: NDArray[np.int64]  # [B]
    obs: dict[str, NDArray[Any]]  # [B, *leaf]
    mask: NDArray[np.bool_] | None  # [B, M]
    tags: Mapping[str, NDArray[Any]]  # [B, ...]

    def copy(self) -> _Border:
        """One that stays."""
        obs = {name: leaf.copy() for name, leaf in self.obs.items()}
        tags = {name: tag.copy() for name, tag in self.tags.items()}
        return _Border(self.episode.copy(), obs, None if self.mask is None else self.mask.copy(), tags)


class EpisodeHistory:
    """Actions since the last reset, per env."""

    def __init__(
        self,
        spec: EnvSpec,
        episode: NDArray[np.int64],
        shown: Callable[[], Shown],
        tags: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Begin with no episode under way.

        Args:
            spec: Of the env.
            episode: [B] the number of each env's episode; written by the workers.
            shown: What all envs show, when none of them is being stepped.
            tags: [B, ...] each; what else belongs to each env's episode, written by the workers.
        """
        self._spec, self._episode, self._shown, self._tags = spec, episode, shown, tags or {}
        self._parts: list[list[NDArray[Any]]] = [[] for _ in range(len(episode))]
        self._marked = self._now()

    def extend(
        self, action: NDArray[Any], ended: NDArray[np.bool_], valid: NDArray[np.bool_], *, first_env: int = 0
    ) -> None:
        """Take in what some envs just did, [T, n, ...] each; the first column is env `first_env`."""
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
        """A rollout begins: keep what its workers will write over."""
        self._marked = self._now().copy()

    def marked(self) -> list[History]:
        """Each env's episode when the rollout under way began."""
        return self._histories(self._marked)

    def snapshot(self) -> list[History]:
        """Each env's episode so far, and the observation it ends with."""
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
        return state | {f"tag/{name}": tag.copy() for name, tag in self._tags.items()}

    def load(self, state: dict[str, NDArray[Any]]) -> list[History]:
        """Take over a checkpoint's histories; returns them for the workers to restore."""
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

    def begin_anew(self, envs: list[int]) -> None:
        """Have these envs, which nobody steps at the moment, begin with their next episodes."""
        self._episode[envs] += 1

    def forget(self, envs: list[int]) -> None:
        """These envs began a new episode instead of being restored."""
        for env in envs:
            self._parts[env] = []

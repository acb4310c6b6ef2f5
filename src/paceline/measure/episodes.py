"""Computes returns and lengths of episodes from the reward and flag arrays of a rollout.

The arrays that the learner trains on are the only source. Statistics of envs are not used: they need a wrapper, and
their keys change between versions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import CheckpointError
from paceline.spec import SUCCEEDED

WINDOW = 100
"""Number of episodes in the running means; 100 as in stable-baselines3."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes that ended in one rollout, in time order (and by env within a row)."""

    t: NDArray[np.int64]  # [N] row of the last step
    env: NDArray[np.int64]  # [N]
    step: NDArray[np.int64]  # [N] steps of the run after that row
    returns: NDArray[np.float64]  # [N]
    length: NDArray[np.int64]  # [N]
    reward_parts: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    """[N, K] reward parts and measures of each episode, in the order of the tracker's `reward_parts`."""
    success: NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    """[N] `spec.SUCCEEDED` or `FAILED`; 0 for episodes that the env has not judged."""

    def __len__(self) -> int:
        return len(self.t)

    @classmethod
    def none(cls) -> Episodes:
        """Return an empty object."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, np.empty(0, np.float64), nothing)

    @classmethod
    def joined(cls, parts: Sequence[Episodes]) -> Episodes:
        """Concatenate several objects."""
        if not parts:
            return cls.none()
        columns = ([getattr(part, item.name) for part in parts] for item in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))


class EpisodeTracker:
    """Adds up returns and lengths per env, across rollouts.

    Args:
        n_envs: Number of envs, which are the columns of a batch.
        sums: Names of reward parts whose sum over an episode is reported.
        lasts: Names of measures whose last value in an episode is reported.
    """

    def __init__(self, n_envs: int, sums: Sequence[str] = (), lasts: Sequence[str] = ()) -> None:
        self.reward_parts = (*sums, *lasts)
        """Names of what is reported for an episode besides return and length."""
        self._sums, self._lasts = tuple(sums), tuple(lasts)
        self._reward_parts = np.zeros((len(sums), n_envs), np.float64)  # of the unfinished episodes
        self._recent_parts: deque[NDArray[np.float64]] = deque(maxlen=WINDOW)
        self.steps = 0
        """Number of valid steps so far."""
        self.episodes = 0
        """Number of finished episodes."""
        self._return = np.zeros(n_envs, np.float64)  # of the unfinished episodes
        self._length = np.zeros(n_envs, np.int64)
        self._recent: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._recent_success: deque[bool] = deque(maxlen=WINDOW)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes; None before the first has ended."""
        return float(np.mean([r for r, _ in self._recent])) if self._recent else None

    @property
    def mean_length(self) -> float | None:
        """Mean length of the last 100 episodes; None before the first has ended."""
        return float(np.mean([n for _, n in self._recent])) if self._recent else None

    @property
    def success_rate(self) -> float | None:
        """Fraction of successes among the last 100 episodes that the env judged; None before the first."""
        return float(np.mean(self._recent_success)) if self._recent_success else None

    def mean_parts(self) -> dict[str, float]:
        """Return the means of reward parts and measures over the last 100 episodes; empty before the first end."""
        if not self._recent_parts or not self.reward_parts:
            return {}
        return dict(zip(self.reward_parts, np.mean(self._recent_parts, axis=0).tolist(), strict=True))

    @property
    def longest_under_way(self) -> int:
        """Steps of the longest unfinished episode (an env may never end one)."""
        return int(self._length.max())

    @property
    def mean_under_way(self) -> float:
        """Mean return so far of the unfinished episodes."""
        return float(self._return.mean())

    def update(
        self,
        reward: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        valid: NDArray[np.bool_],
        *,
        first_env: int = 0,
        reward_parts: Mapping[str, NDArray[Any]] | None = None,
        success: NDArray[np.int8] | None = None,
    ) -> Episodes:
        """Add the next T steps of some envs; returns the episodes that ended in them.

        Args:
            reward: [T, n] rewards of the env; n is n_envs, or less for a slice of the columns.
            terminated: [T, n]
            truncated: [T, n]
            valid: [T, n]; rows that are False (resets of a vector env) count neither as step nor as reward.
            first_env: Index of the env in the first column.
            reward_parts: [T, n] reward parts and measures by name.
            success: [T, n] see `Episodes.success`; None if no env judges its episodes.
        """
        n_steps, n_columns = reward.shape
        own = slice(first_env, first_env + n_columns)
        all_valid = bool(valid.all())

        # One row per env, so that an episode is a contiguous segment of the flat array. Segments begin at
        # every row and after every end; summing them one by one keeps a NaN inside its own episode, which
        # differences of a running sum would not.
        ended = np.empty((n_columns, n_steps), np.bool_)
        np.logical_or(terminated.T, truncated.T, out=ended)
        begins = np.empty_like(ended)
        begins[:, 0] = True
        if not all_valid:
            ended &= valid.T
        begins[:, 1:] = ended[:, :-1]
        starts = np.flatnonzero(begins)
        column = starts // n_steps
        gained = np.zeros((n_columns, n_steps), np.float64)

        def sums_of(values: NDArray[Any]) -> NDArray[np.float64]:
            np.copyto(gained, values.T, where=True if all_valid else valid.T)
            summed: NDArray[np.float64] = np.add.reduceat(gained.reshape(-1), starts)
            return summed

        sums = sums_of(reward)
        stops = np.append(starts[1:], n_columns * n_steps)
        lengths = stops - starts if all_valid else np.add.reduceat(valid.T.reshape(-1), starts, dtype=np.int64)

        first = np.flatnonzero(starts % n_steps == 0)  # each env's first segment continues the last rollout
        sums[first] += self._return[own]
        lengths[first] += self._length[own]
        last = np.append(first[1:], len(starts)) - 1
        unfinished = ~ended[:, -1]
        self._return[own] = np.where(unfinished, sums[last], 0.0)
        self._length[own] = np.where(unfinished, lengths[last], 0)

        complete = np.ones(len(starts), np.bool_)
        complete[last] = ended[:, -1]
        chosen = np.flatnonzero(complete)
        t = (stops[chosen] - 1) % n_steps
        in_time = np.argsort(t, kind="stable")  # stable: by env within a row
        chosen, t = chosen[in_time], t[in_time]

        ends = np.empty((len(chosen), len(self.reward_parts)), np.float64)
        for k, name in enumerate(self._sums):
            parts = sums_of((reward_parts or {})[name])
            parts[first] += self._reward_parts[k, own]
            self._reward_parts[k, own] = np.where(unfinished, parts[last], 0.0)
            ends[:, k] = parts[chosen]
        for k, name in enumerate(self._lasts, len(self._sums)):
            ends[:, k] = (reward_parts or {})[name][t, column[chosen]]

        steps_done = self.steps + np.cumsum(np.count_nonzero(valid, axis=1))
        judged = np.zeros(len(t), np.int8) if success is None else success[t, column[chosen]]
        finished = Episodes(t, column[chosen] + first_env, steps_done[t], sums[chosen], lengths[chosen], ends, judged)
        self.steps = int(steps_done[-1])
        self.episodes += len(finished)
        self._recent.extend(zip(finished.returns[-WINDOW:].tolist(), finished.length[-WINDOW:].tolist(), strict=True))
        self._recent_parts.extend(ends[-WINDOW:])
        self._recent_success.extend((judged[judged > 0] == SUCCEEDED).tolist())
        return finished

    def forget(self, envs: list[int]) -> None:
        """Drop the unfinished episodes of these envs, which had to start new ones."""
        self._return[envs] = 0.0
        self._length[envs] = 0
        self._reward_parts[:, envs] = 0.0

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a checkpoint stores."""
        recent = list(self._recent)
        reward_parts = (
            {"told": self._reward_parts.copy(), "recent_told": np.array(list(self._recent_parts))}
            if self.reward_parts
            else {}
        )
        return {
            **reward_parts,
            "return": self._return.copy(),
            "length": self._length.copy(),
            "recent_return": np.array([r for r, _ in recent], np.float64),
            "recent_length": np.array([n for _, n in recent], np.int64),
            "recent_success": np.array(self._recent_success, np.bool_),
            "counts": np.array([self.steps, self.episodes], np.int64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned.

        Raises:
            CheckpointError: The number of envs differs.
        """
        if state["return"].shape != self._return.shape:
            raise CheckpointError(
                f"episode statistics: the checkpoint has {len(state['return'])} envs, but this run has "
                f"{len(self._return)}. Resume with the same n_envs."
            )
        self._return[...] = state["return"]
        self._length[...] = state["length"]
        self.steps, self.episodes = (int(n) for n in state["counts"])
        if self.reward_parts:
            self._reward_parts[...] = state["told"]
            self._recent_parts = deque(state["recent_told"].reshape(-1, len(self.reward_parts)), maxlen=WINDOW)
        self._recent_success = deque(state.get("recent_success", np.empty(0)).tolist(), WINDOW)
        self._recent = deque(zip(state["recent_return"].tolist(), state["recent_length"].tolist(), strict=True), WINDOW)

"""Finished episodes, read from the reward and flag arrays of a rollout.

Nothing here asks an env for its statistics (a wrapper may be missing, or its keys change):
the arrays that the learner trains on are the one source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.errors import CheckpointError

WINDOW = 100
"""Episodes in the running means, as the field reports them."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes that ended in one rollout, in time order (and by env within a row)."""

    t: NDArray[np.int64]  # [N] row of the last step
    env: NDArray[np.int64]  # [N]
    step: NDArray[np.int64]  # [N] steps of the run when that row was done
    returns: NDArray[np.float64]  # [N]
    length: NDArray[np.int64]  # [N]
    reward_parts: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    """[N, K] what else is told of an episode, in the order of the tracker's `reward_parts`."""

    def __len__(self) -> int:
        return len(self.t)

    @classmethod
    def none(cls) -> Episodes:
        """No episodes."""
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, np.empty(0, np.float64), nothing)

    @classmethod
    def joined(cls, parts: Sequence[Episodes]) -> Episodes:
        """Several one after another."""
        if not parts:
            return cls.none()
        columns = ([getattr(part, item.name) for part in parts] for item in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))


class EpisodeTracker:
    """Adds up returns and lengths per env, over the borders of rollouts.

    Args:
        n_envs: Columns of the whole batch.
        sums: Names of numbers that every step tells, of which an episode's sum is kept.
        lasts: The same, of which the last one is kept.
    """

    def __init__(self, n_envs: int, sums: Sequence[str] = (), lasts: Sequence[str] = ()) -> None:
        self.reward_parts = (*sums, *lasts)
        """What is told of an episode besides its return and its length."""
        self._sums, self._lasts = tuple(sums), tuple(lasts)
        self._reward_parts = np.zeros((len(sums), n_envs), np.float64)  # of the episode under way
        self._recent_parts: deque[NDArray[np.float64]] = deque(maxlen=WINDOW)
        self.steps = 0
        """Valid steps seen."""
        self.episodes = 0
        """Episodes ended."""
        self._return = np.zeros(n_envs, np.float64)  # of the episode under way
        self._length = np.zeros(n_envs, np.int64)
        self._recent: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    @property
    def mean_return(self) -> float | None:
        """Mean return of the last 100 episodes; None before the first has ended."""
        return float(np.mean([r for r, _ in self._recent])) if self._recent else None

    @property
    def mean_length(self) -> float | None:
        """Mean length of the last 100 episodes; None before the first has ended."""
        return float(np.mean([n for _, n in self._recent])) if self._recent else None

    def mean_parts(self) -> dict[str, float]:
        """Means over the last 100 episodes of what else is told of them; empty before the first has ended."""
        if not self._recent_parts or not self.reward_parts:
            return {}
        return dict(zip(self.reward_parts, np.mean(self._recent_parts, axis=0).tolist(), strict=True))

    @property
    def longest_under_way(self) -> int:
        """Steps of the longest episode that has not ended (an env may never end one)."""
        return int(self._length.max())

    @property
    def mean_under_way(self) -> float:
        """Mean of what the episodes under way have gained so far."""
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
    ) -> Episodes:
        """Take in the next T steps of some envs and return the episodes that ended in them.

        Args:
            reward: [T, n] as the env gave it; n = n_envs, or fewer for a slice of the columns.
            terminated: [T, n]
            truncated: [T, n]
            valid: [T, n]; False rows (a vector env's own reset) count neither as step nor as reward.
            first_env: Which env the first column is.
            reward_parts: [T, n] by name, what else every step tells.
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

        def sums_of(numbers: NDArray[Any]) -> NDArray[np.float64]:
            np.copyto(gained, numbers.T, where=True if all_valid else valid.T)
            summed: NDArray[np.float64] = np.add.reduceat(gained.reshape(-1), starts)
            return summed

        sums = sums_of(reward)
        stops = np.append(starts[1:], n_columns * n_steps)
        lengths = stops - starts if all_valid else np.add.reduceat(valid.T.reshape(-1), starts, dtype=np.int64)

        first = np.flatnonzero(starts % n_steps == 0)  # each env's first segment goes on from the last rollout
        sums[first] += self._return[own]
        lengths[first] += self._length[own]
        last = np.append(first[1:], len(starts)) - 1
        under_way = ~ended[:, -1]
        self._return[own] = np.where(under_way, sums[last], 0.0)
        self._length[own] = np.where(under_way, lengths[last], 0)

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
            self._reward_parts[k, own] = np.where(under_way, parts[last], 0.0)
            ends[:, k] = parts[chosen]
        for k, name in enumerate(self._lasts, len(self._sums)):
            ends[:, k] = (reward_parts or {})[name][t, column[chosen]]

        steps_done = self.steps + np.cumsum(np.count_nonzero(valid, axis=1))
        finished = Episodes(t, column[chosen] + first_env, steps_done[t], sums[chosen], lengths[chosen], ends)
        self.steps = int(steps_done[-1])
        self.episodes += len(finished)
        self._recent.extend(zip(finished.returns[-WINDOW:].tolist(), finished.length[-WINDOW:].tolist(), strict=True))
        self._recent_parts.extend(ends[-WINDOW:])
        return finished

    def forget(self, envs: list[int]) -> None:
        """These envs began a new episode out of turn: what they had gained does not count."""
        self._return[envs] = 0.0
        self._length[envs] = 0
        self._reward_parts[:, envs] = 0.0

    def state(self) -> dict[str, NDArray[Any]]:
        """Arrays that a checkpoint keeps."""
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
            "counts": np.array([self.steps, self.episodes], np.int64),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from where `state` was taken."""
        if state["return"].shape != self._return.shape:
            raise CheckpointError(
                f"episode statistics: of {len(state['return'])} envs, but this run has {len(self._return)}. "
                "Resume with the same n_envs."
            )
        self._return[...] = state["return"]
        self._length[...] = state["length"]
        self.steps, self.episodes = (int(n) for n in state["counts"])
        if self.reward_parts:
            self._reward_parts[...] = state["told"]
            self._recent_parts = deque(state["recent_told"].reshape(-1, len(self.reward_parts)), maxlen=WINDOW)
        self._recent.clear()
        self._recent.extend(zip(state["recent_return"].tolist(), state["recent_length"].tolist(), strict=True))

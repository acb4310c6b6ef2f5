"""Makes rows that workers have written available for sampling, and counts their steps and episodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.history import EpisodeHistory
from paceline.measure.episodes import Episodes, EpisodeTracker
from paceline.memory.external_transitions import ExternalRows
from paceline.memory.parts import part, under
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ENDED, SUCCESS_SHIFT, TERMINATED, TRUNCATED, VALID
from paceline.memory.sampling import Sampler
from paceline.spec import ENV_REWARD


class ReplayIngest:
    """Updates replay buffer, sampler, episode tracker and history after workers have written rows.

    Args:
        replay: The replay buffer.
        sampler: Draws from it; notified of each group that has new rows.
        tracker: Counts steps and episodes.
        history: Keeps the actions of the current episodes; None if envs are not restored from them.
        save_replay: Whether checkpoints contain the replay buffer.
    """

    def __init__(
        self,
        replay: Replay,
        sampler: Sampler,
        tracker: EpisodeTracker,
        history: EpisodeHistory | None = None,
        *,
        save_replay: bool = True,
    ) -> None:
        self.replay, self._sampler, self.tracker, self.history = replay, sampler, tracker, history
        self._save_replay = save_replay

    def advance(self, first_group: int, rows: Sequence[int]) -> Episodes:
        """Move the heads of consecutive groups forward over new rows.

        Args:
            first_group: The first group.
            rows: Number of new rows per group, from the first group on.

        Returns:
            The episodes that ended in these rows.
        """
        heads, finished = self.replay.head.tolist(), []
        # Consecutive groups with the same head and the same number of rows need only one call, which is faster.
        for (_, count), same in groupby(enumerate(rows, first_group), lambda group: (heads[group[0]], group[1])):
            groups = [group for group, _ in same]
            finished.append(self._advance(groups[0], groups[-1] + 1, count))
        return Episodes.joined(finished)

    def _advance(self, first: int, stop: int, rows: int) -> Episodes:
        replay, start = self.replay, int(self.replay.head[first])
        columns = replay.shape.columns(first, stop - first)
        flags = replay.advance(first, stop, rows)
        for group in range(first, stop):
            self._sampler.rows_added(group)
        valid, ended = (flags & VALID) != 0, (flags & ENDED) != 0
        if self.history is not None:
            action = replay.rows("action", start, start + rows, columns)
            self.history.extend(action, ended, valid, first_env=columns.start)
        reward_parts = {
            name: replay.rows(f"told/{name}", start, start + rows, columns) for name in replay.shape.spec.reward_parts
        }
        reward = reward_parts.pop(ENV_REWARD) if reward_parts else replay.rows("reward", start, start + rows, columns)
        return self.tracker.update(
            reward,
            (flags & TERMINATED) != 0,
            (flags & TRUNCATED) != 0,
            valid,
            success=(flags >> SUCCESS_SHIFT).view(np.int8),
            first_env=columns.start,
            reward_parts=reward_parts,
        )

    def add(self, external: ExternalRows) -> None:
        """Insert external rows into their group. The current episodes of the group continue after them."""
        self.replay.insert(external.group, external.rows, external.finals)
        self._sampler.rows_added(external.group)

    def align(self, groups: Sequence[int]) -> None:
        """Move the heads of these groups to the one that is furthest, by padding the others with invalid rows."""
        heads = self.replay.head[groups]
        for group in np.array(groups)[heads < heads.max()].tolist():
            self.replay.pad(group, int(heads.max()))
            self._sampler.rows_added(group)

    def exclude_overwritten(self, envs: Sequence[int], rows: int) -> None:
        """Exclude rows that a lost worker may have overwritten.

        Args:
            envs: The envs of the worker.
            rows: Largest number of rows per group that it may have written without reporting them.
        """
        for group in sorted({env // self.replay.shape.group_size for env in envs}):
            self.replay.exclude_overwritten(group, rows)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return replay buffer and sampler for a checkpoint; only the heads without `save_replay`."""
        if not self._save_replay:
            return {"head": self.replay.head.copy()}
        return {**self.replay.state(), **under("sampler/", self._sampler.state())}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from `state()`."""
        if not self._save_replay:
            self.replay.begin_at(state["head"])
            return
        self.replay.load(state)
        self._sampler.load(part(state, "sampler/"))

    def forget_episodes(self, envs: list[int]) -> None:
        """Clear what is recorded about the current episodes of these envs, which have been reset before their end."""
        self.tracker.forget(envs)
        if self.history is not None:
            self.history.forget(envs)

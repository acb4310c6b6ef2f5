"""Rows that workers have written become steps: heads move, episodes are counted, samplers are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.history import EpisodeHistory
from paceline.measure.episodes import Episodes, EpisodeTracker
from paceline.memory.external_transitions import GuestRows
from paceline.memory.parts import part, under
from paceline.memory.replay import Replay
from paceline.memory.replay_rows import ENDED, TERMINATED, TRUNCATED, VALID
from paceline.memory.sampling import Sampler
from paceline.spec import ENV_REWARD


class ReplayIngest:
    """Takes note of rows that were written.

    Args:
        replay: Where.
        sampler: Is told.
        tracker: Counts steps and episodes.
        history: Keeps the actions of episodes under way; None where nobody goes back to them.
        keep: Whether checkpoints hold the replay.
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
        """Each of these groups, the first of them `first_group`, has written so many rows; returns ended episodes."""
        finished, at = [], 0
        while at < len(rows):
            # Groups that are equally far are taken in together: one call instead of many.
            group, head = first_group + at, self.replay.head
            same = at + 1
            while same < len(rows) and rows[same] == rows[at] and head[first_group + same] == head[group]:
                same += 1
            finished.append(self._advance(group, first_group + same, rows[at]))
            at = same
        return Episodes.joined(finished)

    def _advance(self, first: int, stop: int, rows: int) -> Episodes:
        replay, start = self.replay, int(self.replay.head[first])
        columns = slice(replay.columns(first).start, replay.columns(stop - 1).stop)
        flags = replay.advance(first, stop, rows)
        for group in range(first, stop):
            self._sampler.took_in(group)
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
            first_env=columns.start,
            reward_parts=reward_parts,
        )

    def add(self, external: GuestRows) -> None:
        """Rows that somebody else wrote. The episodes under way of that group are cut off, and go on after them."""
        self.replay.insert(external.group, external.rows, external.finals)
        self._sampler.took_in(external.group)

    def align(self, groups: Sequence[int]) -> None:
        """Have groups that are played together go on from the same row: that of the one that is ahead."""
        heads = self.replay.head[groups]
        for group in np.array(groups)[heads < heads.max()].tolist():
            self.replay.pad(group, int(heads.max()))
            self._sampler.took_in(group)

    def distrust(self, envs: Sequence[int], rows: int) -> None:
        """Whoever stepped these is lost, and may have written so many rows that nobody heard of."""
        for group in sorted({env // self.replay.shape.group_size for env in envs}):
            self.replay.distrust(group, rows)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that was stored, and how it is drawn; or where it was, where that is all a checkpoint holds."""
        if not self._save_replay:
            return {"head": self.replay.head.copy()}
        return {**self.replay.state(), **under("sampler/", self._sampler.state())}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from `state()`."""
        if not self._save_replay:
            self.replay.begin_at(state["head"])
            return
        self.replay.load(state)
        self._sampler.load(part(state, "sampler/"))

    def forget_episodes(self, envs: list[int]) -> None:
        """These began a new episode out of turn; whoever steps them has cut the old one off."""
        self.tracker.forget(envs)
        if self.history is not None:
            self.history.forget(envs)

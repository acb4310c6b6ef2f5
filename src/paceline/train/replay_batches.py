"""The collector of DQN with schedule `batch`: all groups collect, then the learner makes the updates that are due.

The results do not depend on the number of workers.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.history import EpisodeHistory
from paceline.collect.transitions import CollectBudget, TransitionCollector
from paceline.envs.block import History
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.external_transitions import ExternalTransitions, external_rows
from paceline.memory.parts import part, under
from paceline.runtime.protocol import shares
from paceline.train.loop import CollectReport
from paceline.train.pacing import BatchPace
from paceline.train.replay_ingest import ReplayIngest
from paceline.train.restarts import Restarts
from paceline.train.rollouts import add_collect_times


class ReplayBatches:
    """Collects a batch of transitions from all groups, with a barrier at its end."""

    def __init__(
        self,
        restarts: Restarts[TransitionCollector],
        ingest: ReplayIngest,
        history: EpisodeHistory,
        budget: CollectBudget,
        pace: BatchPace,
        clock: Clock,
    ) -> None:
        """Store the parts; `reset` or `load` starts the envs.

        Args:
            restarts: The workers, and what replaces lost ones.
            ingest: Counts the rows that workers have written.
            history: Keeps the actions of the current episodes.
            budget: Length of a batch.
            pace: Number of updates per batch.
            clock: Receives the time of the phases `env`, `inference`, `wait` and `sync`.
        """
        self.restarts, self._ingest, self._history, self._clock = restarts, ingest, history, clock
        self._budget, self._pace = budget, pace
        self.last = CollectReport(finished=Episodes.none())
        self._external = 0  # calls of `add_trajectory`
        self._under_way = False

    def next(self, version: int) -> int:  # noqa: ARG002 - workers read the newest weights in place
        """Collect a batch, and return the number of updates that are due."""
        began = perf_counter()
        self._align_groups()
        self._history.mark()
        submitted = self.restarts.start(TransitionCollector.collect, self._ingest.replay.head.tolist(), self._budget)
        self._under_way = True
        with self.restarts.interruptible.during("rollout"):
            written = self.restarts.finish(submitted, self)
        self._under_way = False
        times = [reply.times for reply in written]
        add_collect_times(self._clock, times, perf_counter() - began)
        with self._clock.phase("sync"):
            before = self._ingest.tracker.steps
            finished = self._ingest.advance(0, [rows for reply in written for rows in reply.rows])
            self.last = CollectReport(times=times, finished=finished)
            return self._pace.updates(self.stored, self._ingest.tracker.steps - before)

    def release(self) -> None:
        """Nothing to hand back: the learner samples from the replay."""

    def respawn_restored(self, worker: int) -> list[int]:
        """See `EnvRecovery.respawn_restored`: replays each episode up to the start of the batch."""
        heads = self._ingest.replay.head.tolist()
        return self.restarts.runtime.respawn(worker, TransitionCollector.restore, self._history.marked(), heads)

    def respawn_reset(self, worker: int) -> list[int]:
        """See `EnvRecovery.respawn_reset`."""
        shape = self._ingest.replay.shape
        envs = shares(shape.groups, self.restarts.runtime.num_workers)[worker].envs(shape.group_size)
        self._history.start_next_episodes(envs)
        self.restarts.runtime.respawn(worker, TransitionCollector.reset, self._ingest.replay.head.tolist())
        return envs

    def forget_episodes(self, envs: list[int]) -> None:
        """See `EnvRecovery.forget_episodes`.

        The new worker may write fewer rows than the lost one, which may already have overwritten old rows.
        """
        self._ingest.forget_episodes(envs)
        self._ingest.exclude_overwritten(envs, self._budget.rows)

    def _align_groups(self) -> None:
        """Move all groups to the same row: if batches are counted in rows, groups are collected together."""
        # `add_trajectory` writes rows of some groups only.
        if self._budget.episodes is None:
            self._ingest.align(range(self._ingest.replay.shape.groups))

    @property
    def stored(self) -> int:
        """See `ReplayCollector.stored`."""
        return self._ingest.replay.stored

    def add_trajectory(self, transitions: ExternalTransitions) -> None:
        """See `ReplayCollector.add_trajectory`. The transitions do not count as steps of the run."""
        if transitions:
            self._ingest.add(external_rows(transitions, self._ingest.replay.shape, self._external))
            self._external += 1

    def reset(self) -> None:
        """See `Collector.reset`."""
        self.restarts.run_all(TransitionCollector.reset, self._ingest.replay.head.tolist())

    def extras(self) -> dict[str, NDArray[Any]]:
        """Return no extras: the replay buffer does not store any."""
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Collector.state`. During a batch, without the oldest rows, which workers may be overwriting."""
        if self._under_way:
            self._ingest.exclude_overwritten(range(self._ingest.replay.shape.n_envs), self._budget.rows)
        state = under("history/", self._history.state())
        state["owed"], state["guests"] = np.array(self._pace.remainder), np.array(self._external)
        return state | under("replay/", self._ingest.state())

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """See `Collector.load`."""
        self._pace.remainder, self._external = float(state["owed"]), int(state["guests"])
        self._ingest.load(part(state, "replay/"))
        self._align_groups()
        histories: list[History] = self._history.load(part(state, "history/"))
        heads = self._ingest.replay.head.tolist()
        by_worker = self.restarts.run_all(TransitionCollector.restore, histories, heads)
        restarted = [env for envs in by_worker for env in envs]
        self._ingest.forget_episodes(restarted)
        return restarted

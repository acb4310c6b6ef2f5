"""DQN in batches: all groups play, then the learner learns. The same run whatever the number of workers."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.history import EpisodeHistory
from paceline.collect.transitions import CollectBudget
from paceline.envs.block import History
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.external_transitions import ExternalTransitions, external_rows
from paceline.memory.parts import part, under
from paceline.runtime.protocol import Runtime, shares
from paceline.train.dqn_job import DQNJob
from paceline.train.loop import CollectReport
from paceline.train.pacing import BatchPace
from paceline.train.replay_ingest import ReplayIngest
from paceline.train.restarts import Restarts
from paceline.train.rollouts import add_collect_times


class ReplayBatches:
    """Every group plays, then the learner learns."""

    def __init__(
        self,
        runtime: Runtime[DQNJob],
        ingest: ReplayIngest,
        history: EpisodeHistory,
        budget: CollectBudget,
        pace: BatchPace,
        clock: Clock,
        restarts: Restarts[DQNJob] | None = None,
    ) -> None:
        """Play with these workers.

        Args:
            runtime: The workers.
            ingest: Takes note of what they write.
            history: The actions of episodes under way.
            budget: How long a batch is.
            pace: How much is learned from it.
            clock: Books the time as `env`, `inference`, `wait` and `sync`.
            restarts: Replaces those that are lost.
        """
        self._runtime, self._ingest, self._history, self._clock = runtime, ingest, history, clock
        self._budget, self._pace = budget, pace
        self.last = CollectReport(finished=Episodes.none())
        self.restarts = restarts or Restarts(runtime)
        self._external = 0

    def next(self, version: int) -> int:  # noqa: ARG002 - workers read the newest weights in place
        """Have every group play; returns the updates that are due."""
        began = perf_counter()
        self._align_groups()
        self._history.mark()
        started = self.restarts.start(DQNJob.collect, self._ingest.replay.head.tolist(), self._budget)
        written = self.restarts.finish(started, self)
        times = [one.times for one in written]
        add_collect_times(self._clock, times, perf_counter() - began)
        with self._clock.phase("sync"):
            before = self._ingest.tracker.steps
            finished = self._ingest.advance(0, [rows for one in written for rows in one.rows])
            self.last = CollectReport(times=times, finished=finished)
            return self._pace.updates(self.stored, self._ingest.tracker.steps - before)

    def release(self) -> None:
        """Nothing to hand back: the learner samples from the replay."""

    def respawn_restored(self, worker: int) -> list[int]:
        """Respawn a worker with its envs where they were when the batch began; see `restarts.EnvRecovery`."""
        heads = self._ingest.replay.head.tolist()
        return self._runtime.respawn(worker, DQNJob.restore, self._history.marked(), heads)

    def respawn_reset(self, worker: int) -> list[int]:
        """Respawn a worker with its envs at new episodes; see `restarts.EnvRecovery`."""
        shape = self._ingest.replay.shape
        envs = shares(shape.groups, self._runtime.num_workers)[worker].envs(shape.group_size)
        self._history.start_next_episodes(envs)
        self._runtime.respawn(worker, DQNJob.reset, self._ingest.replay.head.tolist())
        return envs

    def forget_episodes(self, envs: list[int]) -> None:
        """These could not be put back where they were, and began a new episode.

        Which may be shorter than what the lost worker wrote, over rows that are still there.
        """
        self._ingest.forget_episodes(envs)
        self._ingest.distrust(envs, self._budget.rows)

    def _align_groups(self) -> None:
        """Groups that play a number of rows do so together: what `add_trajectory` wrote into some sets them apart."""
        if self._budget.episodes is None:
            self._ingest.align(range(self._ingest.replay.shape.groups))

    @property
    def stored(self) -> int:
        """Transitions that can be learned from."""
        return self._ingest.replay.stored

    def add_trajectory(self, transitions: ExternalTransitions) -> None:
        """Write steps that were taken elsewhere, while all workers rest. They are no steps of this run."""
        if transitions:
            self._ingest.add(external_rows(transitions, self._ingest.replay.shape, self._external))
            self._external += 1

    def reset(self) -> None:
        """Begin the first episodes."""
        self.restarts.run_all(DQNJob.reset, self._ingest.replay.head.tolist())

    def extras(self) -> dict[str, NDArray[Any]]:
        """Empty: a replay keeps what learning needs."""
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """Where play is, for a checkpoint."""
        state = under("history/", self._history.state())
        state["owed"], state["guests"] = np.array(self._pace.remainder), np.array(self._external)
        return state | under("replay/", self._ingest.state())

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Put every env back where it was; returns the envs that could not be and began a new episode."""
        self._pace.remainder, self._external = float(state["owed"]), int(state["guests"])
        self._ingest.load(part(state, "replay/"))
        self._align_groups()
        histories: list[History] = self._history.load(part(state, "history/"))
        heads = self._ingest.replay.head.tolist()
        restarted = [env for envs in self.restarts.run_all(DQNJob.restore, histories, heads) for env in envs]
        self._ingest.forget_episodes(restarted)
        return restarted

"""DQN in batches: all groups play, then the learner learns. The same run whatever the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.history import EpisodeHistory
from paceline.collect.transitions import Stint
from paceline.envs.block import History
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.external_transitions import guest_rows
from paceline.memory.parts import part, under
from paceline.runtime.protocol import Runtime, shares
from paceline.train.dqn_job import DQNJob
from paceline.train.loop import CollectReport
from paceline.train.pacing import BatchPace
from paceline.train.replay_ingest import Intake
from paceline.train.restarts import Restarts
from paceline.train.rollouts import book


class ReplayBatches:
    """Every group plays, then the learner learns."""

    def __init__(
        self,
        runtime: Runtime[DQNJob],
        intake: Intake,
        history: EpisodeHistory,
        stint: Stint,
        pace: BatchPace,
        clock: Clock,
        restarts: Restarts[DQNJob] | None = None,
    ) -> None:
        """Play with these workers.

        Args:
            runtime: The workers.
            intake: Takes note of what they write.
            history: The actions of episodes under way.
            stint: How long a batch is.
            pace: How much is learned from it.
            clock: Books the time as `env`, `inference`, `wait` and `sync`.
            restarts: Replaces those that are lost.
        """
        self._runtime, self._intake, self._history, self._clock = runtime, intake, history, clock
        self._stint, self._pace = stint, pace
        self.last = CollectReport(finished=Episodes.none())
        self.restarts = restarts or Restarts(runtime)
        self._guests = 0

    def next(self, version: int) -> int:  # noqa: ARG002 - workers read the newest weights in place
        """Have every group play; returns the updates that are due."""
        began = perf_counter()
        self._level()
        self._history.mark()
        started = self.restarts.start(DQNJob.collect, self._intake.replay.head.tolist(), self._stint)
        written = self.restarts.finish(started, self)
        times = [one.times for one in written]
        book(self._clock, times, perf_counter() - began)
        with self._clock.phase("sync"):
            before = self._intake.tracker.steps
            finished = self._intake.take(0, [rows for one in written for rows in one.rows])
            self.last = CollectReport(times=times, finished=finished)
            return self._pace.updates(self.stored, self._intake.tracker.steps - before)

    def release(self) -> None:
        """Nothing to hand back: the learner samples from the replay."""

    def put_back(self, worker: int) -> list[int]:
        """Respawn a worker with its envs where they were when the batch began; see `restarts.Envs`."""
        heads = self._intake.replay.head.tolist()
        return self._runtime.respawn(worker, DQNJob.restore, self._history.marked(), heads)

    def begin_anew(self, worker: int) -> list[int]:
        """Respawn a worker with its envs at new episodes; see `restarts.Envs`."""
        shape = self._intake.replay.shape
        envs = shares(shape.groups, self._runtime.num_workers)[worker].envs(shape.group_size)
        self._history.begin_anew(envs)
        self._runtime.respawn(worker, DQNJob.reset, self._intake.replay.head.tolist())
        return envs

    def strayed(self, envs: list[int]) -> None:
        """These could not be put back where they were, and began a new episode.

        Which may be shorter than what the lost worker wrote, over rows that are still there.
        """
        self._intake.strayed(envs)
        self._intake.distrust(envs, self._stint.rows)

    def _level(self) -> None:
        """Groups that play a number of rows do so together: what `add_trajectory` wrote into some sets them apart."""
        if self._stint.episodes is None:
            self._intake.level(range(self._intake.replay.shape.groups))

    @property
    def stored(self) -> int:
        """Transitions that can be learned from."""
        return self._intake.replay.stored

    def add_trajectory(self, transitions: Sequence[Sequence[Any]]) -> None:
        """Write steps that were taken elsewhere, while all workers rest. They are no steps of this run."""
        if transitions:
            self._intake.add(guest_rows(transitions, self._intake.replay.shape, self._guests))
            self._guests += 1

    def reset(self) -> None:
        """Begin the first episodes."""
        self.restarts.begin(DQNJob.reset, self._intake.replay.head.tolist())

    def extras(self) -> dict[str, NDArray[Any]]:
        """Empty: a replay keeps what learning needs."""
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """Where play is, for a checkpoint."""
        state = under("history/", self._history.state())
        state["owed"], state["guests"] = np.array(self._pace.owed), np.array(self._guests)
        return state | under("replay/", self._intake.state())

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Put every env back where it was; returns the envs that could not be and began a new episode."""
        self._pace.owed, self._guests = float(state["owed"]), int(state["guests"])
        self._intake.load(part(state, "replay/"))
        self._level()
        histories: list[History] = self._history.load(part(state, "history/"))
        heads = self._intake.replay.head.tolist()
        restarted = [env for envs in self.restarts.begin(DQNJob.restore, histories, heads) for env in envs]
        self._intake.strayed(restarted)
        return restarted

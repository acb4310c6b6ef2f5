"""DQN in batches: all groups play, then the learner learns. The same run whatever the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.history import EpisodeHistory
from paceline.collect.rollout import CollectTimes
from paceline.collect.transitions import Stint, Written
from paceline.envs.block import History
from paceline.errors import WorkerDied
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.guests import guest_rows
from paceline.memory.parts import part, under
from paceline.runtime.protocol import Runtime
from paceline.train.intake import Intake, kept, take_back
from paceline.train.pacing import BatchPace
from paceline.train.restarts import Restarts


class ReplayBatches:
    """Every group plays, then the learner learns."""

    def __init__(
        self,
        runtime: Runtime,
        intake: Intake,
        history: EpisodeHistory,
        stint: Stint,
        pace: BatchPace,
        clock: Clock,
        *,
        keep: bool = True,
    ) -> None:
        """Play with these workers.

        Args:
            runtime: The workers.
            intake: Takes note of what they write.
            history: The actions of episodes under way.
            stint: How long a batch is.
            pace: How much is learned from it.
            clock: Books the time as `env`, `inference`, `wait` and `sync`.
            keep: Whether checkpoints hold the replay.
        """
        self._runtime, self._intake, self._history, self._clock = runtime, intake, history, clock
        self._stint, self._pace, self._keep = stint, pace, keep
        self.times: list[CollectTimes] = []
        """Where each worker's part of the last batch went."""
        self.finished = Episodes.none()
        """Episodes that ended in the last batch."""
        self.restarts = Restarts(runtime)
        self.lags: list[int] = []
        self.dropped_steps = 0
        self._guests = 0

    def collect(self, version: int) -> int:  # noqa: ARG002 - workers read the newest weights in place
        """Have every group play; returns the updates that are due."""
        began = perf_counter()
        self._history.mark()
        heads = self._intake.replay.head
        self._runtime.start("collect", heads.tolist(), self._stint)
        written = self._wait()
        self._book(perf_counter() - began)
        with self._clock.phase("sync"):
            before = self._intake.tracker.steps
            self.finished = self._intake.take(0, [rows for one in written for rows in one.rows])
            return self._pace.updates(self.stored, self._intake.tracker.steps - before)

    def _wait(self) -> list[Written]:
        """Wait for all workers. One that died is replaced, and its envs go back to where they were."""
        while True:
            try:
                answers: list[Written] = self._runtime.finish()
            except WorkerDied as death:
                heads = self._intake.replay.head.tolist()
                worker, strayed = self.restarts.replace(death, "restore", self._history.marked(), heads)
                if strayed:
                    self.restarts.note(
                        f"worker {worker}: envs {strayed} could not be put back, and began new episodes."
                    )
                self._intake.strayed(strayed)
            else:
                self.times = [one.times for one in answers]
                for worker in range(len(answers)):
                    self.restarts.collected(worker)
                return answers

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
        self._runtime.run("reset", self._intake.replay.head.tolist())

    def state(self) -> dict[str, NDArray[Any]]:
        """Where play is, for a checkpoint."""
        state = under("history/", self._history.state())
        state["owed"], state["guests"] = np.array(self._pace.owed), np.array(self._guests)
        return state | kept(self._intake, self._keep)

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Put every env back where it was; returns the envs that could not be and began a new episode."""
        self._pace.owed, self._guests = float(state["owed"]), int(state["guests"])
        take_back(self._intake, state)
        histories: list[History] = self._history.load(part(state, "history/"))
        heads = self._intake.replay.head.tolist()
        restarted = [env for part in self._runtime.run("restore", histories, heads) for env in part]
        self._intake.strayed(restarted)
        return restarted

    def _book(self, wall_s: float) -> None:
        """Where the time went that the driver waited."""
        env_s = sum(t.env_s for t in self.times) / len(self.times)
        inference_s = sum(t.inference_s for t in self.times) / len(self.times)
        self._clock.add("env", env_s)
        self._clock.add("inference", inference_s)
        self._clock.add("wait", max(0.0, wall_s - env_s - inference_s))

"""Keeps workers supplied with slots to fill, takes in what they have filled, and replaces those that die.

    worker: collect -> collect -> collect ...      it has its next orders in its pipe, and so never waits
    driver: <- slot, <- slot, order that slot anew ...

The orders that a worker has are its credits: with all of its slots full it has none left, and rests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.collect.times import CollectTimes
from paceline.errors import WorkerLost
from paceline.measure.episodes import Episodes, EpisodeTracker
from paceline.memory.slots import Slots
from paceline.runtime.protocol import Job, Reply, Runtime, Share
from paceline.train.restarts import Restarts
from paceline.train.rollouts import count_episodes

POLL_S = 0.5
NOT_BEGUN = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReport:
    """What a worker says about a slot that it has filled."""

    into: int
    version: int
    """Of the weights it was collected with."""
    times: CollectTimes
    lag: int | None = None
    """Updates since, where the worker has learned from it itself."""
    stats: Mapping[str, float] | None = None
    """What came of that; None where the learner has yet to learn from it."""


class SlotJob(Job, Protocol):
    """A job that fills slots on its own: of IMPALA and APPO, or of A3C."""

    def reset(self) -> None:
        """Begin the episode of every env."""

    def collect(self, step: int, into: int) -> SlotReport:
        """Fill the worker's slot of set `into`, from env step `step` on."""


def reset(job: SlotJob) -> None:
    """The call that begins episodes, whichever class the job has."""
    job.reset()


def collect(job: SlotJob, step: int, into: int) -> SlotReport:
    """The call that fills a slot, whichever class the job has."""
    return job.collect(step, into)


@dataclass(frozen=True, slots=True)
class FullSlot:
    """A slot that its worker has filled, and that nobody writes until it is ordered anew."""

    worker: int
    columns: slice
    slots: Slots
    report: SlotReport

    @property
    def steps(self) -> int:
        """Steps that count."""
        return int(np.count_nonzero(self.slots.array("valid")[:, self.columns]))


class SlotScheduler:
    """The driver's end of workers that never wait."""

    def __init__(
        self,
        runtime: Runtime[SlotJob],
        sets: list[Slots],
        shares: list[Share],
        begun: NDArray[np.int64],
        episode: NDArray[np.int64],
        tracker: EpisodeTracker,
        renew: Callable[[], None],
        restarts: Restarts[SlotJob] | None = None,
    ) -> None:
        """Order from these workers.

        Args:
            runtime: The workers.
            sets: Where their slots are.
            shares: What each worker owns.
            begun: [workers, sets] the version each slot is being collected with; written by workers.
            episode: [n_envs] number of each env's episode; written by workers.
            tracker: Counts steps and episodes.
            renew: Has workers see the weights as they are now.
            restarts: Replaces those that are lost.
        """
        self._renew = renew
        self._runtime, self._sets, self._shares = runtime, sets, shares
        self._begun, self._episode, self._tracker = begun, episode, tracker
        self._requested: set[tuple[int, int]] = set()
        self._pending: list[Reply[SlotReport]] = []
        self._steps = [0] * len(shares)
        self._finished: list[Episodes] = []
        self.restarts = restarts or Restarts(runtime)
        self._times = [CollectTimes(0.0, 0.0, 0.0) for _ in shares]

    def begin(self) -> None:
        """Begin the first episodes, and order every slot."""
        self._renew()
        self.restarts.run_all(reset)
        for share in self._shares:
            for into in range(len(self._sets)):
                self._submit(share.worker, into)

    def request(self, full: FullSlot) -> None:
        """Have a slot filled anew."""
        self._submit(full.worker, full.report.into)

    def receive(self) -> list[FullSlot]:
        """Slots that were filled, in the order of their arrival; empty after a while, or if a worker was replaced."""
        try:
            done = self._runtime.wait(self._pending, all=False, timeout_s=POLL_S)
        except WorkerLost as loss:
            self._replace(loss)
            return []
        self._pending = [reply for reply in self._pending if not reply.done]
        return [self._take_in(reply.worker, reply.result()) for reply in done]

    def oldest_under_way(self) -> int | None:
        """The oldest version that some slot is being collected with; None if none has been begun."""
        versions = [int(self._begun[slot]) for slot in self._requested]
        return min((version for version in versions if version != NOT_BEGUN), default=None)

    def finished(self) -> Episodes:
        """Episodes that ended since this was last asked."""
        ended, self._finished = self._finished, []
        return Episodes.joined(ended)

    def times(self) -> list[CollectTimes]:
        """Where the time of each worker's slots went since this was last asked."""
        times, self._times = self._times, [CollectTimes(0.0, 0.0, 0.0) for _ in self._shares]
        return times

    def state(self) -> dict[str, NDArray[Any]]:
        """Where collection is. Episodes under way are not kept."""
        return {"episode": self._episode.copy(), "steps": np.array(self._steps)}

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Go on with each env's next episode; returns the envs, which are all."""
        self._episode[:] = state["episode"] + 1
        self._steps = [int(max(state["steps"]))] * len(self._shares)
        self.begin()
        everyone = list(range(len(self._episode)))
        self._tracker.forget(everyone)
        return everyone

    def _submit(self, worker: int, into: int) -> None:
        self._begun[worker, into] = NOT_BEGUN
        self._requested.add((worker, into))
        self._pending.append(self._runtime.submit(worker, collect, self._steps[worker], into))
        self._steps[worker] += self._sets[into].shape.n_steps

    def _take_in(self, worker: int, report: SlotReport) -> FullSlot:
        self._requested.discard((worker, report.into))
        self.restarts.succeeded(worker)
        self._times[worker] = self._times[worker].plus(report.times)
        full = FullSlot(worker, self._columns(worker), self._sets[report.into], report)
        self._finished.append(count_episodes(self._tracker, full.slots, full.columns))
        return full

    def _replace(self, loss: WorkerLost) -> None:
        """A new process for a worker that is lost: its envs begin new episodes, its orders are given again."""
        columns = self._columns(loss.worker)
        envs = list(range(columns.start, columns.stop))
        self._episode[columns] += 1
        worker, _ = self.restarts.replace(loss, reset)
        self._pending = [reply for reply in self._pending if reply.worker != worker]
        self._tracker.forget(envs)
        self.restarts.note_new_episodes(worker, envs)
        for lost in sorted(into for owner, into in self._requested if owner == worker):
            self._submit(worker, lost)

    def _columns(self, worker: int) -> slice:
        share, size = self._shares[worker], self._sets[0].shape.group_size
        return slice(share.first_group * size, (share.first_group + share.groups) * size)

"""Requests slots from workers, receives the full slots, and replaces lost workers.

    worker: collect -> collect -> collect ...            its next requests are in its pipe already, so it does not wait
    driver: full slot -> ... -> request that slot again

A worker waits only if all of its slots are full.
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
from paceline.runtime.protocol import Job, Reply, shares
from paceline.train.restarts import Restarts
from paceline.train.rollouts import count_episodes

POLL_S = 0.5
"""Timeout of `SlotScheduler.receive`."""
NOT_BEGUN = np.iinfo(np.int64).max
"""In place of a version: the slot is requested, and the worker has not begun to fill it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotReport:
    """A worker's reply to `collect`: a slot that it has filled."""

    into: int
    """Number of the slot's set."""
    version: int
    """Version of the weights that collected the slot."""
    times: CollectTimes
    lag: int | None = None
    """In A3C, the updates of other workers between the copy of the weights and this worker's own update; else None."""
    stats: Mapping[str, float] | None = None
    """In A3C, statistics of the worker's update; None if the driver learns from the slot."""


class SlotJob(Job, Protocol):
    """A job that fills requested slots, in IMPALA, APPO and A3C."""

    def reset(self) -> None:
        """Start the first episode of every env."""

    def collect(self, step: int, into: int) -> SlotReport:
        """Fill the worker's slot of set `into`, whose first row is env step `step`."""


def reset(job: SlotJob) -> None:
    """Call `job.reset`. This function can be submitted whatever the class of the job is."""
    job.reset()


def collect(job: SlotJob, step: int, into: int) -> SlotReport:
    """Call `job.collect`. This function can be submitted whatever the class of the job is."""
    return job.collect(step, into)


@dataclass(frozen=True, slots=True)
class FullSlot:
    """A slot that its worker has filled. No process writes it until it is requested again."""

    worker: int
    columns: slice
    """The worker's columns."""
    slots: Slots
    """The slot's set."""
    report: SlotReport

    @property
    def steps(self) -> int:
        """Number of valid steps."""
        return int(np.count_nonzero(self.slots.arrays["valid"][:, self.columns]))


class SlotScheduler:
    """Keeps every worker supplied with requests for slots."""

    def __init__(
        self,
        restarts: Restarts[SlotJob],
        sets: list[Slots],
        begun: NDArray[np.int64],
        episode: NDArray[np.int64],
        tracker: EpisodeTracker,
        renew: Callable[[], None],
    ) -> None:
        """Store the parts; `reset` or `load` starts the envs.

        Args:
            restarts: The workers, and what replaces lost ones.
            sets: The sets of slots.
            begun: [workers, sets] version of the weights with which each slot is being filled; workers write it.
            episode: [n_envs] number of each env's episode; workers write it.
            tracker: Counts steps and episodes.
            renew: Publishes the present weights to the workers.
        """
        self.restarts, self._runtime, self._sets, self._renew = restarts, restarts.runtime, sets, renew
        self._begun, self._episode, self._tracker = begun, episode, tracker
        self._shares = shares(sets[0].shape.groups, self._runtime.num_workers)
        self._requested: dict[tuple[int, int], Reply[SlotReport]] = {}  # by worker and number of the set
        self._started = False
        self._steps = [0] * len(self._shares)
        self._finished: list[Episodes] = []
        self._times = [CollectTimes(0.0, 0.0, 0.0) for _ in self._shares]

    def reset(self) -> None:
        """Start the first episode of every env."""
        self._renew()
        self.restarts.run_all(reset)

    def start(self) -> None:
        """Request every slot, in the first call. Before it workers are idle, so no step is taken during start-up."""
        if self._started:
            return
        self._started = True
        for share in self._shares:
            for into in range(len(self._sets)):
                self._submit(share.worker, into)

    def request(self, full: FullSlot) -> None:
        """Request a slot again, after its data has been copied or dropped."""
        self._submit(full.worker, full.report.into)

    def receive(self) -> list[FullSlot]:
        """Return new full slots. Blocks until there is one, `POLL_S` have passed, or a worker was replaced."""
        try:
            done = self.restarts.wait_any([*self._requested.values()], POLL_S)
        except WorkerLost as loss:
            self._replace(loss)
            return []
        return [self._full_slot(reply.worker, reply.result()) for reply in done]

    def oldest_under_way(self) -> int | None:
        """Return the oldest version with which a slot is being filled; None if no slot is."""
        versions = [int(self._begun[slot]) for slot in self._requested]
        return min((version for version in versions if version != NOT_BEGUN), default=None)

    def finished(self) -> Episodes:
        """Return the episodes that ended since the last call."""
        ended, self._finished = self._finished, []
        return Episodes.joined(ended)

    def times(self) -> list[CollectTimes]:
        """Return the times that each worker measured since the last call."""
        times, self._times = self._times, [CollectTimes(0.0, 0.0, 0.0) for _ in self._shares]
        return times

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the numbers of episodes and steps, for a checkpoint. Unfinished episodes are not stored."""
        return {"episode": self._episode.copy(), "steps": np.array(self._steps)}

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Continue from `state()` with the next episode of every env; returns all envs."""
        self._episode[:] = state["episode"] + 1
        self._steps = [int(max(state["steps"]))] * len(self._shares)
        self.reset()
        envs = list(range(len(self._episode)))
        self._tracker.forget(envs)
        return envs

    def _submit(self, worker: int, into: int) -> None:
        self._begun[worker, into] = NOT_BEGUN
        self._requested[worker, into] = self._runtime.submit(worker, collect, self._steps[worker], into)
        self._steps[worker] += self._sets[into].shape.n_steps

    def _full_slot(self, worker: int, report: SlotReport) -> FullSlot:
        del self._requested[worker, report.into]
        self.restarts.succeeded(worker)
        self._times[worker] = self._times[worker].plus(report.times)
        full = FullSlot(worker, self._columns(worker), self._sets[report.into], report)
        self._finished.append(count_episodes(self._tracker, full.slots, full.columns))
        return full

    def _replace(self, loss: WorkerLost) -> None:
        """Replace a lost worker: its envs start new episodes, and its pending requests are submitted again."""
        worker = loss.worker
        envs = self._shares[worker].envs(self._sets[0].shape.group_size)
        self._episode[envs] += 1
        self.restarts.replace(loss, reset)
        self._tracker.forget(envs)
        self.restarts.note_new_episodes(worker, envs)
        for pending in sorted(into for owner, into in self._requested if owner == worker):
            self._submit(worker, pending)

    def _columns(self, worker: int) -> slice:
        share = self._shares[worker]
        return self._sets[0].shape.columns(share.first_group, share.groups)

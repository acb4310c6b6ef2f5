"""The collector of DQN with schedule `async`: workers collect while the learner learns, within the limiter's bounds."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.collect.times import CollectTimes
from paceline.collect.transitions import CollectBudget, TransitionCollector, Written
from paceline.errors import ConfigError, WorkerLost
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.external_transitions import ExternalTransitions
from paceline.memory.parts import part, under
from paceline.runtime.protocol import Reply, Share, shares
from paceline.train.loop import CollectReport
from paceline.train.pacing import Limiter
from paceline.train.replay_ingest import ReplayIngest
from paceline.train.restarts import Restarts
from paceline.train.rollouts import add_waiting_time

POLL_S = 0.5
MAX_UPDATES = 64
"""Maximum number of updates between two checks for replies of workers."""
REQUESTS_PER_WORKER = 2
"""Requests that a worker has at a time: the one that it executes, and the next one, so that it does not wait."""


class ReplayStream:
    """Keeps every worker supplied with requests for transitions, and the learner with updates."""

    def __init__(
        self,
        restarts: Restarts[TransitionCollector],
        ingest: ReplayIngest,
        episode: NDArray[np.int64],
        budget: CollectBudget,
        limiter: Limiter,
        samples: Callable[[], int],
        renew: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Store the parts; `reset` or `load` starts the envs.

        Args:
            restarts: The workers, and what replaces lost ones.
            ingest: Counts the rows that workers have written.
            episode: [B] number of each env's episode; workers write it.
            budget: Length of a request.
            limiter: Limits the ratio of samples to steps.
            samples: Returns the number of samples that the learner has drawn so far.
            renew: Publishes the present weights to the workers.
            clock: Receives the time of the phases `wait` and `sync`; without workers also `env` and `inference`.
        """
        self.restarts, self._runtime, self._ingest, self._episode = restarts, restarts.runtime, ingest, episode
        self._shares = shares(ingest.replay.shape.groups, self._runtime.num_workers)
        self._budget, self._limiter, self._samples, self._renew = budget, limiter, samples, renew
        self._clock = clock
        self._requests = [0] * len(self._shares)  # pending requests per worker
        self._pending: list[Reply[Written]] = []
        self._times = [CollectTimes(0.0, 0.0, 0.0) for _ in self._shares]
        self._ended: list[Episodes] = []
        self._min_stored = 1  # transitions before the next update
        self.last = CollectReport(finished=Episodes.none())

    def reset(self) -> None:
        """See `Collector.reset`. Workers are idle until `next`, so no step is taken during start-up."""
        self._renew()
        self.restarts.run_all(TransitionCollector.reset, self._ingest.replay.head.tolist())

    def next(self, version: int) -> int:  # noqa: ARG002 - replayed transitions have no lag
        """Return the number of updates that the learner may make. Blocks until there is at least one."""
        began, tracker = perf_counter(), self._ingest.tracker
        if not self._pending:
            self._request_more()
        self._receive(0.0)
        while not (updates := self._limiter.updates(tracker.steps, self._samples())) or not self._enough():
            self._request_more()
            self._receive(POLL_S)
        add_waiting_time(self._clock, self._times, perf_counter() - began, workers=self._runtime.num_workers)
        self.last = CollectReport(times=self._times, finished=Episodes.joined(self._ended))
        self._ended, self._times = [], [CollectTimes(0.0, 0.0, 0.0) for _ in self._shares]
        return min(updates, MAX_UPDATES)

    def release(self) -> None:
        """Submit the requests that the limiter allows after the updates."""
        with self._clock.phase("sync"):
            self._request_more()

    def add_trajectory(self, transitions: ExternalTransitions) -> None:  # noqa: ARG002
        """See `ReplayCollector.add_trajectory`: always refused."""
        raise ConfigError("add_trajectory: workers write all the time in async mode. Use schedule='batch'.")

    @property
    def stored(self) -> int:
        """See `ReplayCollector.stored`."""
        return self._ingest.replay.stored

    def _enough(self) -> bool:
        """Whether there are enough transitions to sample. Resuming with an empty replay waits as a new run does."""
        if self.stored < self._min_stored and not self._ingest.replay.full:
            return False
        self._min_stored = 1
        return self.stored > 0

    def _request_more(self) -> None:
        """Submit as many requests as the limiter allows, first to the worker whose groups have the fewest rows.

        Otherwise, if learning is the bottleneck, the fastest worker would get all requests.
        """
        while free := [share for share in self._shares if self._requests[share.worker] < REQUESTS_PER_WORKER]:
            share = min(free, key=self._requested_rows)
            requested = self._ingest.tracker.steps + self._under_way() + share.groups * self._group_steps
            # With too few transitions the learner cannot catch up, so the limiter would wait for ever.
            if self._enough() and not self._limiter.may_play(requested, self._samples()):
                return
            self._submit(share)

    def _requested_rows(self, share: Share) -> int:
        """Row up to which each group of a worker will have collected after its pending requests."""
        return int(self._ingest.replay.head[share.first_group]) + self._requests[share.worker] * self._budget.rows

    def _submit(self, share: Share) -> None:
        heads = (self._ingest.replay.head + self._requests[share.worker] * self._budget.rows).tolist()
        self._requests[share.worker] += 1
        self._pending.append(self._runtime.submit(share.worker, TransitionCollector.collect, heads, self._budget))

    @property
    def _group_steps(self) -> int:
        return self._budget.rows * self._ingest.replay.shape.group_size

    def _under_way(self) -> int:
        groups = sum(requests * share.groups for requests, share in zip(self._requests, self._shares, strict=True))
        return groups * self._group_steps

    def _receive(self, timeout_s: float) -> None:
        try:
            done = self.restarts.wait_any(self._pending, timeout_s)
        except WorkerLost as loss:
            self._replace(loss)
            return
        self._pending = [reply for reply in self._pending if not reply.done]
        for reply in done:
            worker, written = reply.worker, reply.result()
            self._requests[worker] -= 1
            self.restarts.succeeded(worker)
            self._times[worker] = self._times[worker].plus(written.times)
            self._ended.append(self._ingest.advance(self._shares[worker].first_group, written.rows))

    def _replace(self, loss: WorkerLost) -> None:
        """Replace a lost worker: its envs start new episodes, and its pending requests are submitted again."""
        worker = loss.worker
        envs = self._shares[worker].envs(self._ingest.replay.shape.group_size)
        self._ingest.forget_episodes(envs)
        self._episode[envs] += 1
        self.restarts.replace(loss, TransitionCollector.reset, self._ingest.replay.head.tolist())
        self._pending = [reply for reply in self._pending if reply.worker != worker]
        self.restarts.note_new_episodes(worker, envs)
        pending, self._requests[worker] = self._requests[worker], 0
        for _ in range(pending):
            self._submit(self._shares[worker])

    def extras(self) -> dict[str, NDArray[Any]]:
        """Return no extras: the replay buffer does not store any."""
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """See `Collector.state`. Unfinished episodes are not stored."""
        return {"episode": self._episode.copy(), **under("replay/", self._ingest.state())}

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """See `Collector.load`: every env continues with its next episode, so this returns all envs."""
        self._episode[:] = state["episode"] + 1
        self._ingest.load(part(state, "replay/"))
        for share in self._shares:  # the run that was saved may have had other shares, whose groups had different heads
            self._ingest.align(range(share.first_group, share.first_group + share.groups))
        self._min_stored = 1 if self.stored else self._limiter.starts
        envs = list(range(len(self._episode)))
        self._ingest.forget_episodes(envs)
        self.reset()
        return envs

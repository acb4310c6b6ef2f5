"""The collector of asynchronous training: puts batches together from the slots that workers fill first.

    request a slot -> full slot -> wait for enough of them -> copy into the batch -> update -> request the slot again

Limits the lag: slots whose weights are too old are waited for in time, dropped or masked.
"""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.batch import Trajectory
from paceline.collect.times import CollectTimes
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.slot_copies import copy_columns
from paceline.memory.slots import Slots
from paceline.train.loop import CollectReport
from paceline.train.restarts import Restarts
from paceline.train.rollouts import add_waiting_time
from paceline.train.slot_scheduler import FullSlot, SlotJob, SlotScheduler

OnLag = Literal["stall", "drop", "mask"]


class AsyncRollouts:
    """Workers collect continuously; a batch consists of the slots that are full first."""

    def __init__(
        self,
        scheduler: SlotScheduler,
        learning: Slots,
        clock: Clock,
        *,
        batch_slots: int,
        max_lag: float = math.inf,
        on_lag: OnLag = "stall",
    ) -> None:
        """Store the parts; `reset` or `load` starts the envs.

        Args:
            scheduler: Requests slots from workers.
            learning: The memory of a batch.
            clock: Receives the time of the phases `wait` and `sync`; without workers also `env`, `inference`, `learn`.
            batch_slots: Number of slots in a batch.
            max_lag: Largest lag of a slot, in updates.
            on_lag: How the limit is kept. `stall`: wait for slots before they become too old. `drop`: leave out slots
                that are too old. `mask`: put them into the batch as invalid steps.
        """
        self._scheduler, self._learning, self._clock = scheduler, learning, clock
        self._batch_slots, self._max_lag, self._on_lag = batch_slots, max_lag, on_lag
        self._ready: list[FullSlot] = []
        self._batch: list[FullSlot] = []
        self._drops = 0
        self.learned_steps = 0
        """Steps used for learning so far, including the current batch."""
        self.last = CollectReport(finished=Episodes.none())

    @property
    def restarts(self) -> Restarts[SlotJob]:
        """See `Collector.restarts`."""
        return self._scheduler.restarts

    @property
    def dropped_steps(self) -> int:
        """Steps that were collected but not used for learning, including those that wait for the next batch."""
        return self._drops + sum(full.steps for full in self._ready if full.report.stats is None)

    def reset(self) -> None:
        """See `Collector.reset`."""
        self._scheduler.reset()

    def next(self, version: int) -> Trajectory:
        """Return a batch of full slots, those with the oldest weights first. Blocks until there are enough.

        Args:
            version: Version of the weights that will learn from the batch.
        """
        began = perf_counter()
        self._scheduler.start()
        self._drop(version)
        while len(self._ready) < self._batch_slots or self._too_old_soon(version):
            self._receive()
            self._drop(version)
        times = self._scheduler.times()
        add_waiting_time(
            self._clock, times, perf_counter() - began, workers=self._scheduler.restarts.runtime.num_workers
        )
        with self._clock.phase("sync"):
            return self._assemble(version, times)

    def extras(self) -> dict[str, NDArray[Any]]:
        """See `Collector.extras`."""
        return self._learning.extras()

    def release(self) -> None:
        """See `Collector.release`: request the slots of the batch again."""
        with self._clock.phase("sync"):
            for full in self._batch:
                self._scheduler.request(full)
            self._batch = []

    def state(self) -> dict[str, NDArray[Any]]:
        """Where collection is, for a checkpoint."""
        return {**self._scheduler.state(), "counts": np.array([self.learned_steps, self.dropped_steps])}

    def load(self, state: dict[str, NDArray[Any]]) -> list[int]:
        """Go on with each env's next episode; returns the envs, which are all."""
        self.learned_steps, self._drops = (int(count) for count in state["counts"])
        return self._scheduler.load(state)

    def _receive(self) -> None:
        arrived = self._scheduler.receive()
        self._ready += arrived
        self.learned_steps += sum(full.steps for full in arrived if full.report.stats is not None)

    def _lag(self, full: FullSlot, version: int) -> int:
        return version - full.report.version if full.report.lag is None else full.report.lag

    def _too_old(self, full: FullSlot, version: int) -> bool:
        return self._lag(full, version) > self._max_lag

    def _too_old_soon(self, version: int) -> bool:
        """Whether a slot that is being filled would be too old for the next batch, so that this batch waits."""
        oldest = self._scheduler.oldest_under_way() if self._on_lag == "stall" else None
        return oldest is not None and version + 1 - oldest > self._max_lag

    def _drop(self, version: int) -> None:
        """Drop slots that are too old. With `stall` this is rare: a slot was queued for long before it was begun."""
        old = [full for full in self._ready if self._too_old(full, version)]
        if self._on_lag == "mask" and len(old) < self._batch_slots:
            return  # `_assemble` masks them, beside newer slots
        self._ready = [full for full in self._ready if not self._too_old(full, version)]
        for full in old:
            self._drops += full.steps
            self._scheduler.request(full)

    def _assemble(self, version: int, times: list[CollectTimes]) -> Trajectory:
        """Copy the oldest full slots into the batch."""
        by_age = sorted(self._ready, key=lambda full: full.report.version)
        self._batch, self._ready = by_age[: self._batch_slots], by_age[self._batch_slots :]
        lags = []
        valid, at = self._learning.arrays["valid"], 0
        for full in self._batch:
            begin, at = at, copy_columns(full.slots, full.columns, into=self._learning, at=at)
            if self._too_old(full, version):
                self._drops += full.steps
                valid[:, begin:at] = False
            else:
                self.learned_steps += full.steps if full.report.stats is None else 0
                lags.append(self._lag(full, version))
        # Workers may own different numbers of groups. The rest of the batch is invalid.
        valid[:, at:] = False
        self._learning.arrays["final_count"][at // self._learning.shape.group_size :] = 0
        self.last = CollectReport(
            times=times,
            finished=self._scheduler.finished(),
            lags=lags,
            dropped_steps=self.dropped_steps,
        )
        return self._learning.trajectory(min(full.report.version for full in self._batch))

    def worker_stats(self) -> list[dict[str, float]]:
        """Statistics of the updates that workers have made themselves (A3C), per slot of the last batch."""
        return [dict(full.report.stats) for full in self._batch if full.report.stats is not None]

"""Batches of whatever is ready first, and never too old.

requests -> full slots -> enough for a batch? -> copied side by side -> learned from -> requested again
"""

from __future__ import annotations

from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paceline.batch import Trajectory
from paceline.measure.clock import Clock
from paceline.measure.episodes import Episodes
from paceline.memory.slot_copies import copy_columns
from paceline.memory.slots import Slots
from paceline.train.loop import CollectReport
from paceline.train.restarts import Restarts
from paceline.train.slot_scheduler import FullSlot, SlotJob, SlotScheduler

OnLag = Literal["stall", "drop", "mask"]


class AsyncRollouts:
    """Collects continuously; a batch is whatever is ready first."""

    def __init__(
        self,
        scheduler: SlotScheduler,
        learning: Slots,
        clock: Clock,
        *,
        batch_slots: int,
        max_lag: int | None = None,
        on_lag: OnLag = "stall",
    ) -> None:
        """Collect what is ordered.

        Args:
            scheduler: Has workers fill slots.
            learning: Where a batch is put together.
            clock: Books the time as `wait` and `sync`.
            batch_slots: Slots that make a batch.
            max_lag: Updates that the weights may have had since a slot was begun; None for any number.
            on_lag: What happens to slots that would be older: the learner waits for them in time, or they are left
                out, or they take their place in a batch without counting.
        """
        self._scheduler, self._learning, self._clock = scheduler, learning, clock
        self._batch_slots, self._max_lag, self._on_lag = batch_slots, max_lag, on_lag
        self._ready: list[FullSlot] = []
        self._batch: list[FullSlot] = []
        self._drops = 0
        self.learned_steps = 0
        self.last = CollectReport(finished=Episodes.none())

    @property
    def restarts(self) -> Restarts[SlotJob]:
        """Of workers."""
        return self._scheduler.restarts

    @property
    def dropped_steps(self) -> int:
        """Steps that were collected and not learned from, those that wait for a batch included."""
        return self._drops + sum(full.steps for full in self._ready if full.report.stats is None)

    def reset(self) -> None:
        """Begin the first episodes."""
        self._scheduler.begin()

    def next(self, version: int) -> Trajectory:
        """The slots that are ready first, once there are enough of them; the oldest first.

        Args:
            version: Of the weights that will learn from it.
        """
        began = perf_counter()
        self._drop(version)
        while len(self._ready) < self._batch_slots or self._too_old_soon(version):
            self._receive()
            self._drop(version)
        self._clock.add("wait", perf_counter() - began)
        with self._clock.phase("sync"):
            return self._assemble(version)

    def extras(self) -> dict[str, NDArray[Any]]:
        """[T+1, B, ...] what was read beside the observations of the last batch, by name."""
        return self._learning.extras()

    def release(self) -> None:
        """The batch was learned from: order its slots anew."""
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
        return self._max_lag is not None and self._lag(full, version) > self._max_lag

    def _too_old_soon(self, version: int) -> bool:
        """Whether some slot under way would be too old for the batch after this one, and so has to be waited for."""
        if self._on_lag != "stall" or self._max_lag is None:
            return False
        oldest = self._scheduler.oldest_under_way()
        return oldest is not None and version + 1 - oldest > self._max_lag

    def _drop(self, version: int) -> None:
        """Leave out what is too old. While stalling that is rare: a slot that was long in the queue."""
        old = [full for full in self._ready if self._too_old(full, version)]
        if self._on_lag == "mask" and len(old) < self._batch_slots:
            return  # they take their place in the next batch, beside newer ones
        self._ready = [full for full in self._ready if not self._too_old(full, version)]
        for full in old:
            self._drops += full.steps
            self._scheduler.request(full)

    def _assemble(self, version: int) -> Trajectory:
        """Copy the oldest slots side by side."""
        by_age = sorted(self._ready, key=lambda full: full.report.version)
        self._batch, self._ready = by_age[: self._batch_slots], by_age[self._batch_slots :]
        lags = []
        valid, at = self._learning.array("valid"), 0
        for full in self._batch:
            begin, at = at, copy_columns(full.slots, full.columns, into=self._learning, at=at)
            if self._too_old(full, version):
                self._drops += full.steps
                valid[:, begin:at] = False
            else:
                self.learned_steps += full.steps if full.report.stats is None else 0
                lags.append(self._lag(full, version))
        # Workers may own different numbers of groups: what is left of the room counts for nothing.
        valid[:, at:] = False
        self._learning.array("final_count")[at // self._learning.shape.group_size :] = 0
        self.last = CollectReport(
            times=self._scheduler.times(),
            finished=self._scheduler.finished(),
            lags=lags,
            dropped_steps=self.dropped_steps,
        )
        return self._learning.trajectory(min(full.report.version for full in self._batch))

    def worker_stats(self) -> list[dict[str, float]]:
        """What workers that learn by themselves say of the slots of the last batch."""
        return [dict(full.report.stats) for full in self._batch if full.report.stats is not None]

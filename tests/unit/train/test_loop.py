"""The training loop calls collector, learner, budget and record in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.algos.bad_updates import BadUpdates
from paceline.measure.episodes import Episodes
from paceline.runtime.protocol import Job
from paceline.train.checkpoint import State
from paceline.train.loop import CollectReport, Driver
from paceline.train.restarts import Restarts


class Stage:
    """Collector, learner, budget and record in one object, which records every call."""

    last = CollectReport(finished=Episodes.none())
    lag = 0

    def __init__(self, updates: int) -> None:
        self.calls: list[Any] = []
        self.version, self._left = 0, updates
        self.bad = BadUpdates()

    @property
    def restarts(self) -> Restarts[Job]:
        raise AssertionError("the loop does not replace workers")

    def reset(self) -> None:
        raise AssertionError("the caller resets the envs")

    def next(self, version: int) -> str:
        self.calls.append(("next", version))
        return f"batch {version}"

    def release(self) -> None:
        self.calls.append("release")

    def extras(self) -> dict[str, NDArray[Any]]:
        return {}

    def update(self, batch: str, progress: float) -> dict[str, float]:
        self.calls.append((batch, progress))
        self.version += 1
        return {"loss": float(self.version)}

    def state(self) -> State:
        return {}

    def load(self, state: State) -> Any:
        raise AssertionError(state)

    def load_weights(self, weights: NDArray[np.float32]) -> None:
        raise AssertionError(weights)

    def spent(self) -> bool:
        self._left -= 1
        return self._left < 0

    def progress(self) -> float:
        return self.version / 10

    def collected(self) -> None:
        self.calls.append("collected")

    def updated(self, stats: dict[str, float]) -> None:
        self.calls.append(stats)


def test_each_pass_collects_learns_releases_and_records_in_this_order() -> None:
    stage = Stage(updates=2)
    Driver(stage, stage).train(stage, stage)
    assert stage.calls == [
        ("next", 0), "collected", ("batch 0", 0.0), "release", {"loss": 1.0},
        ("next", 1), "collected", ("batch 1", 0.1), "release", {"loss": 2.0},
    ]  # fmt: skip


def test_a_spent_budget_collects_nothing() -> None:
    stage = Stage(updates=0)
    Driver(stage, stage).train(stage, stage)
    assert stage.calls == []


def test_iterate_makes_one_pass_without_bookkeeping() -> None:
    stage = Stage(updates=0)
    Driver(stage, stage).iterate(0.25)
    assert stage.calls == [("next", 0), ("batch 0", 0.25), "release"]

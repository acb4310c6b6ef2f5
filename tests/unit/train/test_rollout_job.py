"""The job of a worker that collects rollouts and computes gradients."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.collect.times import CollectTimes
from paceline.train.rollout_job import RolloutJob


class Calls:
    """Stands for the collector and for the gradient; notes every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            self.calls.append((name, *args))
            return {"collect": CollectTimes(1.0, 2.0, 4.0), "restore": [3], "dump": [b"env"], "busy_s": 0.5}.get(name)

        return call

    def __call__(self, shard: int) -> None:
        self.calls.append(shard)


def job(*, gradient: bool = True) -> tuple[RolloutJob, Calls, Calls]:
    collector: Any = Calls()
    sharded: Any = Calls()
    return RolloutJob(collector, sharded if gradient else None), collector, sharded


def test_calls_go_to_the_collector() -> None:
    it, collector, _ = job()
    it.reset()
    assert it.restore([]) == [3]
    assert it.dump() == [b"env"]
    it.collect(8)
    it.close()
    assert collector.calls == [("reset",), ("restore", []), ("dump",), ("collect", 8), ("close",)]


def test_the_time_of_gradients_is_part_of_the_times_of_the_next_rollout() -> None:
    it, _, sharded = job()
    it.work(3)
    assert sharded.calls == [3]
    assert it.collect(0) == CollectTimes(1.0, 2.0, 4.0, learn_s=0.5)
    assert job(gradient=False)[0].collect(0) == CollectTimes(1.0, 2.0, 4.0)


def test_a_worker_without_a_gradient_refuses_to_compute_shards() -> None:
    with pytest.raises(RuntimeError, match="built without a gradient"):
        job(gradient=False)[0].work(0)

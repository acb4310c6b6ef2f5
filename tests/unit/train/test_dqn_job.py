"""The job of a worker of DQN: it passes on the heads of its own groups, and renews its weights."""

from __future__ import annotations

from typing import Any

from paceline.collect.transitions import CollectBudget
from paceline.train.dqn_job import DQNJob

HEADS = [10, 20, 30, 40]


class Recorder:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.calls.append((name, *args))


def test_only_the_heads_of_its_own_groups_reach_the_collector() -> None:
    collector: Any = Recorder()
    job = DQNJob(collector, slice(1, 3), lambda: collector.calls.append("renewed"))
    budget = CollectBudget(rows=4)
    job.reset(HEADS)
    job.restore([], HEADS)
    job.collect(HEADS, budget)
    job.close()
    assert collector.calls == [
        ("reset", [20, 30]), ("restore", [], [20, 30]), "renewed", ("collect", [20, 30], budget), ("close",),
    ]  # fmt: skip

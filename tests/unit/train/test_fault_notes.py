"""Notes about faults that a run survived."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from paceline.algos.bad_updates import BadUpdates
from paceline.collect.finite import ENV_BITS
from paceline.memory.worker_status import NOT_FINITE, heartbeat_field
from paceline.train.fault_notes import LONG_EPISODE, FaultNotes


def training(**tracked: Any) -> Any:
    status = heartbeat_field(2)
    restarts = SimpleNamespace(notes=lambda: [("worker 1 died. It is replaced", "its traceback")])
    return SimpleNamespace(
        arena={"heartbeat": np.zeros(status.shape, status.dtype)},
        config=SimpleNamespace(env=SimpleNamespace(on_nan="warn")),
        rollouts=SimpleNamespace(restarts=restarts),
        learner=SimpleNamespace(bad=BadUpdates()),
        tracker=SimpleNamespace(**{"episodes": 0, "longest_under_way": 0, "mean_under_way": 2.5, **tracked}),
        clock=SimpleNamespace(elapsed_s=1.0),
        runtime=SimpleNamespace(pids=lambda: [11, 12]),
    )


def texts(notes: FaultNotes) -> list[str]:
    return [note for note, _ in notes.notes()]


def test_a_replaced_worker_is_noted_with_details_for_the_log() -> None:
    assert list(FaultNotes(training()).notes()) == [("worker 1 died. It is replaced", "its traceback")]


def test_values_that_are_not_finite_are_counted_and_noted() -> None:
    it = training()
    notes = FaultNotes(it)
    it.arena["heartbeat"][:, NOT_FINITE] = 2 << ENV_BITS  # the count; the lower bits hold the env
    assert any("NaN" in text or "finite" in text for text in texts(notes))
    assert notes.not_finite.count == 4


def test_an_env_that_never_ends_is_noted_once() -> None:
    notes = FaultNotes(training(longest_under_way=LONG_EPISODE))
    assert sum("no episode has ended in 20,000 steps" in text for text in texts(notes)) == 1
    assert not any("no episode" in text for text in texts(notes))


def test_an_env_whose_episodes_end_is_not_noted() -> None:
    assert not any("no episode" in text for text in texts(FaultNotes(training(longest_under_way=10**6, episodes=1))))

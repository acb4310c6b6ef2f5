"""A long final evaluation says how far it is and how long it takes; a short one says nothing."""

from __future__ import annotations

import pytest

from paceline.train import evaluation_notes
from paceline.train.evaluation_notes import EvaluationNotes


def test_notes_come_after_doubling_times_with_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(evaluation_notes, "perf_counter", lambda: now[0])
    shown: list[str] = []
    watch = EvaluationNotes(10, lambda text: shown.append(f"{now[0]:g}: {text}"))
    for step in range(200):  # 20 observations per episode, one every 0.25 s
        watch(None, step % 20 == 0)
        now[0] += 0.25
    hint = ". The budget does not include it: Ctrl-C skips it, --n-eval-episodes sets its length"
    assert shown == [
        f"2: final evaluation: 0 of 10 episodes in 2 s{hint}",
        "4: final evaluation: 0 of 10 episodes in 4 s",
        "8: final evaluation: 1 of 10 episodes in 8 s, about 72 s left",
        "16: final evaluation: 3 of 10 episodes in 16 s, about 37 s left",
        "32: final evaluation: 6 of 10 episodes in 32 s, about 21 s left",
    ]


def test_a_short_evaluation_shows_nothing() -> None:
    shown: list[str] = []
    watch = EvaluationNotes(3, shown.append)
    for step in range(30):
        watch(None, step % 10 == 0)
    assert not shown

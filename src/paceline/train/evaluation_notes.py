"""Tells the user how long the final evaluation takes, because the budget of the run does not include it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

FIRST_S = 2.0
"""Time of the first note; a shorter evaluation needs none. Each later note comes after twice the time."""


class EvaluationNotes:
    """Watches the final evaluation of a run: the `watch` of `Evaluator.evaluate`.

    Args:
        episodes: Number of its episodes.
        note: Shows a line to the user.
    """

    def __init__(self, episodes: int, note: Callable[[str], None]) -> None:
        self._episodes, self._note = episodes, note
        self._begun, self._began, self._due_s = 0, perf_counter(), FIRST_S

    def __call__(self, _env: Any, first: bool) -> None:
        """Count an episode if this is its first observation; show a note if one is due."""
        self._begun += first
        spent_s = perf_counter() - self._began
        if spent_s < self._due_s:
            return
        done = self._begun - 1
        text = f"final evaluation: {done} of {self._episodes} episodes in {spent_s:.0f} s"
        if done:
            text += f", about {spent_s / done * (self._episodes - done):.0f} s left"
        if self._due_s == FIRST_S:
            text += ". The budget does not include it: Ctrl-C skips it, --n-eval-episodes sets its length"
        self._note(text)
        self._due_s = 2 * max(self._due_s, spent_s)

"""Ends a run when its budget of steps, episodes or seconds is spent, or on request."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker
from paceline.measure.record import Goal


@dataclass(slots=True)
class RunBudget:
    """Ends a run at the first budget that is spent. Checked once per iteration: up to one rollout late."""

    tracker: EpisodeTracker
    clock: Clock
    goal: Goal
    stop_reason: str | None = None
    """Why the run ends; None while it continues."""

    def stop(self, reason: str) -> None:
        """End the run after the current iteration. The first reason stays."""
        self.stop_reason = self.stop_reason or reason

    def spent(self) -> bool:
        """Whether the run ends; if so, `stop_reason` says why."""
        for name, share in self._shares().items():
            if share >= 1.0:
                self.stop(name)
        return self.stop_reason is not None

    def progress(self) -> float:
        """Spent fraction of the budget, from 0 to 1: the largest of the fractions of steps, episodes and seconds."""
        return min(1.0, max(self._shares().values(), default=0.0))

    def _shares(self) -> dict[str, float]:
        goal, shares = self.goal, {}
        if goal.steps:
            shares["total_timesteps"] = self.tracker.steps / goal.steps
        if goal.episodes:
            shares["total_episodes"] = self.tracker.episodes / goal.episodes
        if goal.seconds:
            shares["duration"] = self.clock.elapsed_s / goal.seconds
        return shares

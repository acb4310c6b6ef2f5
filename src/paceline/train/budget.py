"""When a run ends: by steps, episodes, seconds or request, whichever comes first."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.measure.clock import Clock
from paceline.measure.episodes import EpisodeTracker


@dataclass(slots=True)
class RunBudget:
    """Asked once per iteration, so a run ends within one rollout of its budget."""

    tracker: EpisodeTracker
    clock: Clock
    total_timesteps: int | None = None
    total_episodes: int | None = None
    duration_s: float | None = None
    stop_reason: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after the iteration under way."""
        self.stop_reason = self.stop_reason or reason

    def spent(self) -> bool:
        """Whether to stop; `stop_reason` then says why."""
        for name, share in self._shares().items():
            if share >= 1.0:
                self.stop(name)
        return self.stop_reason is not None

    def progress(self) -> float:
        """The share that is spent of whichever budget is nearest to its end."""
        return min(1.0, max(self._shares().values(), default=0.0))

    def _shares(self) -> dict[str, float]:
        shares = {}
        if self.total_timesteps:
            shares["total_timesteps"] = self.tracker.steps / self.total_timesteps
        if self.total_episodes:
            shares["total_episodes"] = self.tracker.episodes / self.total_episodes
        if self.duration_s:
            shares["duration"] = self.clock.elapsed_s / self.duration_s
        return shares

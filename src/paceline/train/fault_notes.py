"""Notes for the user about faults that a run survived: shown on the display and written to the log."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.collect.finite import NotFinite
from paceline.measure.growth import MemoryGrowth
from paceline.measure.machine import Usage
from paceline.train.training import Training

LONG_EPISODE = 20_000
"""Steps of an env without the end of an episode after which a note warns about it."""


class FaultNotes:
    """Finds what has happened since the last call.

    Args:
        training: Its workers, envs and learner are observed.
    """

    def __init__(self, training: Training) -> None:
        self._training, self._growth = training, MemoryGrowth()
        self.not_finite = NotFinite(training.arena["heartbeat"], training.config.env.on_nan)
        """Counts NaN and infinite values from envs, with `on_nan` warn or replace."""
        self._endless_noted = False

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield notes about replaced workers, NaN from envs, skipped updates and endless episodes.

        Each is a line, and details for the log.
        """
        yield from self._training.rollouts.restarts.notes()
        for note in (*self.not_finite.notes(), *self._training.learner.bad.notes()):
            yield note, ""
        tracker = self._training.tracker
        if not self._endless_noted and not tracker.episodes and tracker.longest_under_way >= LONG_EPISODE:
            self._endless_noted = True
            yield (
                f"no episode has ended in {tracker.longest_under_way:,} steps of an env; the mean return so far is "
                f"{tracker.mean_under_way:.6g}. Does the env ever set terminated or truncated?",
                "",
            )

    def memory_growth(self, usage: Usage) -> Iterator[str]:
        """Yield notes about processes whose memory keeps growing."""
        names = {pid: f"worker {worker} (pid {pid})" for worker, pid in enumerate(self._training.runtime.pids())}
        yield from self._growth(self._training.clock.elapsed_s, usage.each_mb, names)

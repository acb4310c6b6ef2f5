"""The ratio of updates to env steps in DQN: a count for the batch schedule, and a limiter for the async schedule."""

from __future__ import annotations

from paceline.config.dqn_settings import DQNConfig


class BatchPace:
    """Number of updates after each batch (schedule `batch`).

    Args:
        config: The settings of DQN.
        groups: Number of groups in the run.
    """

    def __init__(self, config: DQNConfig, groups: int) -> None:
        self._config = config
        per_batch = config.learning_steps_per_batch
        self._per_batch = groups * (config.episodes_per_batch or 1) if per_batch is None else per_batch
        self.remainder = 0.0
        """Fraction of an update that is due and carried over to the next batch."""

    def updates(self, stored: int, inserted: int) -> int:
        """Return the number of updates that are due after a batch.

        Args:
            stored: Transitions that can be sampled.
            inserted: Steps of the batch.
        """
        config = self._config
        if stored < config.learning_starts:
            return 0
        if config.spi is None:
            return self._per_batch
        self.remainder += inserted * config.spi / config.batch_size
        due = int(self.remainder)
        self.remainder -= due
        return due


class Limiter:
    """Keeps `samples` close to `samples_per_insert * inserts`: workers or learner wait if too far ahead.

    Args:
        config: The settings of DQN.
        under_way: Largest number of steps that all workers collect at once. `max_ahead` allows for them, as workers
            would otherwise wait for the learner in every request.
    """

    def __init__(self, config: DQNConfig, under_way: int) -> None:
        self._spi = config.spi or 0.0
        self._batch = config.batch_size
        self.starts = config.learning_starts
        """Number of steps before the first update."""
        configured = config.spi_tolerance * self._spi * self.starts
        self.max_ahead = max(configured, float(self._batch), self._spi * under_way)
        """Samples by which either side may be ahead. At least one update and all steps that workers collect at once, so
        that workers and learner never wait for each other (no deadlock)."""

    def ahead(self, inserts: int, samples: int) -> float:
        """Return by how many samples the learner is ahead of the ratio; negative if workers are ahead."""
        return samples - self._spi * max(0, inserts - self.starts)

    def updates(self, inserts: int, samples: int) -> int:
        """Return the number of updates that the learner may make now."""
        if inserts < self.starts:
            return 0
        return max(0, int((self.max_ahead - self.ahead(inserts, samples)) // self._batch))

    def may_play(self, requested: int, samples: int) -> bool:
        """Return whether workers may collect up to `requested` steps in total after `samples` samples."""
        return requested <= self.starts or -self.ahead(requested, samples) <= self.max_ahead

"""How much is learned for how much is played: counting in batches, and a limiter for those who do both at once."""

from __future__ import annotations

from paceline.config.dqn_settings import DQNConfig


class BatchPace:
    """Updates after each batch.

    Args:
        config: Says how they are counted.
        groups: Of the run.
    """

    def __init__(self, config: DQNConfig, groups: int) -> None:
        self._config = config
        each = config.learning_steps_per_batch
        self._each = groups * config.episodes_per_batch if each is None else each
        self.remainder = 0.0
        """Parts of an update that the batches so far asked for."""

    def updates(self, stored: int, inserted: int) -> int:
        """Updates that are due after a batch.

        Args:
            stored: Transitions that can be learned from.
            inserted: Steps of the batch.
        """
        config = self._config
        if stored < config.learning_starts:
            return 0
        if config.spi is None:
            return self._each
        self.remainder += inserted * config.spi / config.batch_size
        due = int(self.remainder)
        self.remainder -= due
        return due


class Limiter:
    """Keeps `samples` close to `samples_per_insert * inserts`, by holding back whoever is ahead.

    Args:
        config: Says how many samples an insert asks for.
        under_way: Steps that may be being played at once: less room than for those would keep players waiting.
    """

    def __init__(self, config: DQNConfig, under_way: int) -> None:
        self._spi = config.spi or 0.0
        self._batch = config.batch_size
        self.starts = config.learning_starts
        """Steps before the first update."""
        asked = config.spi_tolerance * self._spi * self.starts
        self.max_ahead = max(asked, float(self._batch), self._spi * under_way)
        """Samples that either side may be ahead by. With room for one update and for all that is under way, it never
        happens that both wait."""

    def ahead(self, inserts: int, samples: int) -> float:
        """Samples beyond what was asked for; below zero, players are ahead."""
        return samples - self._spi * max(0, inserts - self.starts)

    def updates(self, inserts: int, samples: int) -> int:
        """Updates that the learner may make now."""
        if inserts < self.starts:
            return 0
        return max(0, int((self.max_ahead - self.ahead(inserts, samples)) // self._batch))

    def may_play(self, requested: int, samples: int) -> bool:
        """Whether so many steps, ordered ones included, are not too many for what was learned."""
        return requested <= self.starts or -self.ahead(requested, samples) <= self.max_ahead

"""Which settings of the learner are fastest for an env, a network and a machine: measured, and left to the user."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from paceline.config.train_config import TrainConfig
from paceline.errors import ConfigError
from paceline.insight.learner_probe import LearnerProbe, nothing_to_try
from paceline.insight.learner_settings import LearnerSpeeds
from paceline.insight.windows import iterate, phase_shares
from paceline.train.build import build


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found."""

    num_workers: int
    learn_share: float
    """Of learning in the time of training."""
    learner: LearnerSpeeds

    def json(self) -> dict[str, Any]:
        """The result as plain values; `learner` as in the result of `bench`."""
        return {"num_workers": self.num_workers, "learner": self.learner.json(self.learn_share)}


def tune(config: TrainConfig, *, rounds: int, window_s: float, tick: Callable[[str], None] = lambda _: None) -> Tuned:
    """Measure learning by the settings of the config and by others, in turns.

    Args:
        config: What to train; its budget does not matter.
        rounds: Windows of each setting.
        window_s: Seconds of a round, shared out between the settings; at least one rollout's learning for each.
        tick: Told what is being done.

    Raises:
        ConfigError: There is nothing to choose from.
    """
    tick("starting")
    with closing(build(config)) as training:
        if (why := nothing_to_try(training)) is not None:
            raise ConfigError(f"tune: {why}. There is nothing to try; leave the learner's settings as they are.")
        training.rollouts.reset()
        iterate(training)  # the first iteration loads kernels and touches every page
        mark = training.clock.snapshot()
        with closing(LearnerProbe(training)) as probe:
            for number in range(rounds):
                tick(f"round {number + 1} of {rounds}, {len(probe.settings)} settings")
                iterate(training)
                probe.round(window_s)
            share = phase_shares(training.clock, mark)["learn"]
            return Tuned(training.runtime.num_workers, share, probe.speeds())

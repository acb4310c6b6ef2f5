"""Times learner settings (`grad_shards`, `learner_threads`) for an env, a network and this machine: `paceline tune`."""

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
    """Result of `tune`."""

    num_workers: int
    learn_share: float
    """Share of learning in the time of training."""
    learner: LearnerSpeeds

    def json(self) -> dict[str, Any]:
        """The result as plain values; `learner` as in the result of `bench`."""
        return {"num_workers": self.num_workers, "learner": self.learner.json(self.learn_share)}


def tune(config: TrainConfig, *, rounds: int, window_s: float, tick: Callable[[str], None] = lambda _: None) -> Tuned:
    """Time the learner with the config's settings and with others, in alternating windows.

    Args:
        config: What to train; its budget is ignored.
        rounds: Windows of each setting.
        window_s: Seconds per round, divided among the settings; each learns from at least one rollout.
        tick: Called with a progress message at every stage.

    Raises:
        ConfigError: These settings cannot be measured for this config.
    """
    tick("starting")
    with closing(build(config)) as training:
        if (why := nothing_to_try(training)) is not None:
            raise ConfigError(f"tune: {why}. Keep the default grad_shards and learner_threads.")
        training.rollouts.reset()
        iterate(training)  # warm-up: the first iteration loads kernels and touches every page
        mark = training.clock.snapshot()
        with closing(LearnerProbe(training)) as probe:
            for number in range(rounds):
                tick(f"round {number + 1} of {rounds}, {len(probe.settings)} settings")
                iterate(training)
                probe.round(window_s)
            share = phase_shares(training.clock, mark)["learn"]
            return Tuned(training.runtime.num_workers, share, probe.speeds())

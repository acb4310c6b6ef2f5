"""Chooses which `grad_shards` and `learner_threads` to time, and recommends one from the measured speeds.

Both settings change the weights (floating-point rounding), so a run never chooses them itself. `bench` and `tune`
print a recommendation instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paceline.insight.windows import ratio
from paceline.measure.cpu import CpuSupply
from paceline.runtime.work_queue import MOST

SHARDS_PER_PROCESS = 4
"""Largest number of shards per process that is tried: more shards only add calls."""
MOST_GRADIENT_BYTES = 2**29
"""Largest memory of the gradients of all shards."""
FEWEST_ROUNDS = 3
"""Fewest rounds for a recommendation: fewer do not show the noise."""
LEAST_GAIN = 0.05
"""Smallest relative gain for a recommendation."""
NOISE = 2.0
"""Smallest gain for a recommendation, in multiples of the spread of its ratios."""
TURN_S = 0.2
"""Target duration of one timed update in seconds. A single minibatch may take longer."""
PAGE = "docs/how-to/choose-workers-and-envs.md"


@dataclass(frozen=True, slots=True, order=True)
class LearnerSetting:
    """One combination of the settings that are timed."""

    grad_shards: int
    learner_threads: int

    def differences_from(self, other: LearnerSetting) -> dict[str, int]:
        """The values of this setting that differ from the other's, by name."""
        return {name: value for name, value in asdict(self).items() if value != getattr(other, name)}


def alternatives(
    current: LearnerSetting, *, rows: int, weights: int, processes: int, cores: int
) -> tuple[LearnerSetting, ...]:
    """The settings to time, the current one first.

    Args:
        current: The setting of the config.
        rows: Steps per minibatch. Only numbers of shards that divide it are tried, so that all shards are equal.
        weights: Number of parameters of the network.
        processes: Processes that compute gradients in parallel.
        cores: Cores that may be used. Torch threads of all processes together do not exceed them.
    """
    most = min(MOST, SHARDS_PER_PROCESS * processes, MOST_GRADIENT_BYTES // (4 * weights))
    shards = {LearnerSetting(count, current.learner_threads) for count in _doublings(most) if rows % count == 0}
    threads = {
        LearnerSetting(count, each)
        for count in (1, current.grad_shards)
        for each in _doublings(cores)
        if min(count, processes) * each <= cores
    }
    return current, *sorted((shards | threads) - {current})


def turn_size(minibatch_s: float, minibatches: int, n_epochs: int) -> tuple[int, int]:
    """Epochs and minibatches of one timed update: as in training, or as many as fit into `TURN_S`.

    Args:
        minibatch_s: Seconds per minibatch.
        minibatches: Minibatches per epoch of the training.
        n_epochs: Epochs per update of the training.
    """
    most = max(1, int(TURN_S / minibatch_s))
    return max(1, min(n_epochs, most // minibatches)), min(minibatches, most)


def _words(settings: dict[str, int]) -> str:
    return " with ".join(f"{name} {value}" for name, value in settings.items())


def _doublings(most: int) -> list[int]:
    """The powers of two up to `most`."""
    return [2**power for power in range(most.bit_length())]


@dataclass(frozen=True, slots=True)
class LearnerSpeeds:
    """Measured speed of each setting, in updates per second with one entry per round; the current setting first."""

    updates_per_s: Mapping[LearnerSetting, tuple[float, ...]]
    supply: CpuSupply | None = None
    """CPU time during the measurement; None if it was not measured."""

    @property
    def current(self) -> LearnerSetting:
        """The setting of the config."""
        return next(iter(self.updates_per_s))

    def speedup(self, setting: LearnerSetting) -> tuple[float, float]:
        """Speed of a setting relative to the current one (median over rounds), and the spread of that ratio.

        The spread is half the range between the quartiles.
        """
        return ratio(self.updates_per_s[setting], self.updates_per_s[self.current])

    def faster(self) -> LearnerSetting | None:
        """The fastest setting that beats the current one beyond the noise; None if there is none."""
        if len(self.updates_per_s[self.current]) < FEWEST_ROUNDS:
            return None
        clear = [setting for setting in self.updates_per_s if self._clearly(setting)]
        return max(clear, key=lambda setting: self.speedup(setting)[0], default=None)

    def _clearly(self, setting: LearnerSetting) -> bool:
        mid, spread = self.speedup(setting)
        always = np.array(self.updates_per_s[setting]) > np.array(self.updates_per_s[self.current])
        return bool(always.all()) and mid - NOISE * spread > 1.0 and mid >= 1.0 + LEAST_GAIN

    def hint(self, learn_share: float) -> str | None:
        """The recommendation in one line; None if no setting is faster.

        Args:
            learn_share: Share of learning in the time of training.
        """
        if (best := self.faster()) is None:
            return None
        mid, spread = self.speedup(best)
        faster, current = best.differences_from(self.current), self.current.differences_from(best)
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in faster.items())
        others = "" if self.supply is None or self.supply.quiet else f", {self.supply.others_text()}"
        return (
            f"{_words(faster)} would learn {mid:.2f} ± {spread:.2f} times as fast as "
            f"{_words(current)} here{others}; "
            f"learning takes {100 * learn_share:.0f} % of the time. "
            f"It changes the result (see {PAGE}): {flags}"
        )

    def json(self, learn_share: float) -> dict[str, Any]:
        """The result as plain values."""
        settings = []
        for setting, windows in self.updates_per_s.items():
            mid, spread = self.speedup(setting)
            settings.append(
                {
                    **asdict(setting),
                    "updates_per_s": float(np.median(windows)),
                    "windows": list(windows),
                    "speedup": mid,
                    "speedup_spread": spread,
                }
            )
        best = self.faster()
        return {
            "current": asdict(self.current),
            "learn_share": learn_share,
            "others_share": None if self.supply is None else self.supply.others_share,
            "settings": settings,
            "faster": None if best is None else asdict(best),
            "hint": self.hint(learn_share),
        }

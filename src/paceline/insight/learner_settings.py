"""Whether other `grad_shards` or `learner_threads` would learn faster: what to try, and what measured speeds say.

Both are part of the result, so no run chooses them by itself; `bench` and `tune` say where a choice would pay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from paceline.insight.windows import ratio
from paceline.runtime.work_queue import MOST

SHARDS_PER_HAND = 4
"""More pieces for each process that computes them only cost calls."""
MOST_GRADIENT_BYTES = 2**29
"""What the gradients of all shards may take."""
FEWEST_ROUNDS = 3
"""Fewer tell nothing of the noise."""
LEAST_GAIN = 0.05
"""What is said to be faster must be so by this much at least."""
NOISE = 2.0
"""And by this many times the spread of its ratios."""
TURN_S = 0.2
"""The least that is measured at a time, where a minibatch does not take longer."""
QUIET = 0.1
"""Other programs that have more of the cores than this are mentioned."""
PAGE = "docs/how-to/choose-workers-and-envs.md"


@dataclass(frozen=True, slots=True)
class LearnerSetting:
    """How gradients are computed."""

    grad_shards: int
    learner_threads: int

    def beside(self, other: LearnerSetting) -> dict[str, int]:
        """What of it differs from the other, by name."""
        return {name: value for name, value in asdict(self).items() if value != getattr(other, name)}


def alternatives(
    current: LearnerSetting, *, rows: int, weights: int, hands: int, cores: int
) -> tuple[LearnerSetting, ...]:
    """What is worth trying, the current setting first.

    Args:
        current: What the config says.
        rows: Steps of a minibatch. Shards divide it, so that all are of one size.
        weights: Parameters of the network.
        hands: Processes that compute gradients side by side.
        cores: That may be used; torch threads of all hands together need no more.
    """
    most = min(MOST, SHARDS_PER_HAND * hands, MOST_GRADIENT_BYTES // (4 * weights))
    shards = [count for count in _doublings(most) if rows % count == 0]
    pairs = [(count, current.learner_threads) for count in shards]
    for count in {1, current.grad_shards}:
        pairs += [(count, each) for each in _doublings(cores) if min(count, hands) * each <= cores]
    others = sorted({LearnerSetting(*pair) for pair in pairs} - {current}, key=lambda one: tuple(asdict(one).values()))
    return current, *others


def turn_size(minibatch_s: float, minibatches: int, n_epochs: int) -> tuple[int, int]:
    """Epochs and minibatches of a turn: as in training, or as many as fit into `TURN_S`.

    Args:
        minibatch_s: What one takes.
        minibatches: Of an epoch of training.
        n_epochs: Of training.
    """
    most = max(1, int(TURN_S / minibatch_s))
    return max(1, min(n_epochs, most // minibatches)), min(minibatches, most)


def _words(settings: dict[str, int]) -> str:
    return " with ".join(f"{name} {value}" for name, value in settings.items())


def _doublings(most: int) -> list[int]:
    """1, 2, 4 and so on."""
    return [2**power for power in range(most.bit_length())]


@dataclass(frozen=True, slots=True)
class Faster:
    """A setting that learns faster than the current one, beyond the noise."""

    setting: LearnerSetting
    ratio: float
    spread: float
    """Half the range between the quartiles."""


@dataclass(frozen=True, slots=True)
class LearnerSpeeds:
    """What was measured: updates per second of each setting, one entry per round; the current setting first."""

    updates_per_s: Mapping[LearnerSetting, tuple[float, ...]]
    others_share: float = 0.0
    """Of the machine's cores, what other programs had before it began."""

    @property
    def current(self) -> LearnerSetting:
        """What the config says."""
        return next(iter(self.updates_per_s))

    def speedup(self, setting: LearnerSetting) -> tuple[float, float]:
        """Its speed in times that of the current one, and the spread of that."""
        return ratio(self.updates_per_s[setting], self.updates_per_s[self.current])

    def faster(self) -> Faster | None:
        """The fastest of those that beat the current setting beyond the noise, if any does."""
        if len(self.updates_per_s[self.current]) < FEWEST_ROUNDS:
            return None
        found = [Faster(setting, *self.speedup(setting)) for setting in self.updates_per_s if self._clearly(setting)]
        return max(found, key=lambda one: one.ratio, default=None)

    def _clearly(self, setting: LearnerSetting) -> bool:
        mid, spread = self.speedup(setting)
        always = np.array(self.updates_per_s[setting]) > np.array(self.updates_per_s[self.current])
        return bool(always.all()) and mid - NOISE * spread > 1.0 and mid >= 1.0 + LEAST_GAIN

    def hint(self, learn_share: float) -> str | None:
        """What a user should know, in one line; None where nothing is faster.

        Args:
            learn_share: The share of learning in the time of training.
        """
        if (best := self.faster()) is None:
            return None
        theirs, ours = best.setting.beside(self.current), self.current.beside(best.setting)
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in theirs.items())
        others = f" while other programs had {100 * self.others_share:.0f} % of the cores"
        return (
            f"{_words(theirs)} would learn {best.ratio:.2f} ± {best.spread:.2f} times as fast as "
            f"{_words(ours)} here{others if self.others_share > QUIET else ''}; "
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
            "others_share": self.others_share,
            "settings": settings,
            "faster": None if best is None else asdict(best.setting),
            "hint": self.hint(learn_share),
        }

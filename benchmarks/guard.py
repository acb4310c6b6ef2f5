"""Whether a ratio fell: what `make bench-check` decides. Standard library only, so that tests can load it.

A ratio of two speeds from one run means the same on a slow machine and on a fast one, so it can be compared with
one that was measured elsewhere. Of all ratios here, more is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

TOLERANCE = 0.25
"""Share of a ratio that may be lost to another machine or another day."""
SPREADS = 3.0
"""A ratio that varies by more than that from round to round may lose this many spreads."""
MOST = 0.5
"""But no more than this: half the speed is gone, however noisy the machine."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median over rounds, and half the range between the quartiles."""

    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One ratio, before and now."""

    name: str
    was: Ratio | None
    """None: the baseline does not have it."""
    now: Ratio | None
    """None: it was not measured."""
    floor: float
    """The least that passes."""

    @property
    def fell(self) -> bool:
        """Whether it is below the floor, or gone. A NaN fell too."""
        return self.was is not None and (self.now is None or not self.now.value >= self.floor)


def judge(baseline: Mapping[str, Ratio], measured: Mapping[str, Ratio]) -> list[Verdict]:
    """Compare every ratio of either side, in the order of the baseline, then of the new ones."""
    return [
        Verdict(name, baseline.get(name), measured.get(name), _floor(baseline.get(name), measured.get(name)))
        for name in dict.fromkeys([*baseline, *measured])
    ]


def tolerance(*ratios: Ratio) -> float:
    """The share that may be lost, by how much these vary by themselves."""
    noise = math.hypot(*(ratio.spread / ratio.value for ratio in ratios if ratio.value > 0))
    return min(MOST, max(TOLERANCE, SPREADS * noise))


def _floor(was: Ratio | None, now: Ratio | None) -> float:
    if was is None:
        return 0.0
    return was.value * (1.0 - tolerance(*(ratio for ratio in (was, now) if ratio is not None)))

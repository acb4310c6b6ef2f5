"""Whether a ratio fell: what `make bench-check` decides. Standard library only, so that tests can load it.

A ratio of two speeds from one run means the same on a slow machine and on a fast one, so it can be compared with
one that was measured elsewhere. Of all ratios here, more is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_LOSS = 0.05
"""A smaller loss never counts: CartPole's ratio of unchanged code was 1.72, 1.74 and 1.79 in three runs of one day."""
SPREADS = 3.0
"""A ratio may lose this many of its measured spreads, those of baseline and new run together."""
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
    return min(MOST, max(LEAST_LOSS, SPREADS * noise))


def _floor(was: Ratio | None, now: Ratio | None) -> float:
    if was is None:
        return 0.0
    return was.value * (1.0 - tolerance(*(ratio for ratio in (was, now) if ratio is not None)))


LEAST_DIFFERENCE = 0.02
"""Less is never called a difference. Chosen, not measured: compare a checkout with itself to find the real floor."""
FEW_ROUNDS = 4
"""Below this many rounds quartiles say little, and the whole range counts as noise."""


def noise_of(ratios: Sequence[float], spread: float) -> float:
    """How far from 1 the median of `new / old` must be to count: twice the spread, with few rounds the range."""
    measured = 2.0 * spread if len(ratios) >= FEW_ROUNDS else max(ratios) - min(ratios)
    return max(LEAST_DIFFERENCE, measured)


def difference(ratios: Sequence[float], median: float, spread: float) -> str:
    """`faster`, `slower` or `no difference beyond the noise`, from `new / old` round by round."""
    if len(ratios) < 2 or not abs(median - 1.0) > noise_of(ratios, spread):
        return "no difference beyond the noise"
    return "faster" if median > 1.0 else "slower"

"""Decide whether a ratio of speeds fell: `make bench-check` and `make bench-two`. Standard library only.

A ratio of two speeds from one run means the same on a slow machine and on a fast one, so it can be compared with a
ratio that was measured elsewhere. More is better for every ratio here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MIN_ALLOWED = 0.05
"""A smaller loss always passes: CartPole's ratio of unchanged code was 1.72, 1.74 and 1.79 in three runs of one day,
which is more than the rounds of one run differ."""
SPREADS = 3.0
"""Combined spreads of baseline and new run that a ratio may lose."""
MAX_ALLOWED = 0.5
"""A loss of half the speed always fails, however noisy the machine is."""
TOO_NOISY = 0.25
"""If noise allows a larger loss than this, the verdict asks for another measurement."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median over rounds and its spread, which is half the interquartile range."""

    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """The loss that passes, as a share of the baseline."""

    share: float
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """One ratio in the baseline and in the new run."""

    name: str
    was: Ratio | None
    """None if the baseline does not have this ratio."""
    now: Ratio | None
    """None if it was not measured."""
    allowed: Allowance

    @property
    def minimum(self) -> float:
        """The smallest value that passes."""
        return 0.0 if self.was is None else self.was.value * (1.0 - self.allowed.share)

    @property
    def loss(self) -> float:
        """Share of the baseline that was lost; negative for a gain, NaN without both measurements."""
        if self.was is None or self.now is None or not self.was.value:
            return math.nan
        return 1.0 - self.now.value / self.was.value

    @property
    def fell(self) -> bool:
        """Whether the ratio is below the minimum, NaN or missing."""
        return self.was is not None and (self.now is None or not self.now.value >= self.minimum)

    @property
    def word(self) -> str:
        """The verdict for the table."""
        if self.was is None:
            return "new: make bench-baseline"
        if self.fell:
            return "FELL"
        return "ok, but noisy: measure again" if self.allowed.share > TOO_NOISY else "ok"


def judge(baseline: Mapping[str, Ratio], measured: Mapping[str, Ratio]) -> list[Verdict]:
    """Compare all ratios of either side: first those of the baseline, then the new ones."""
    verdicts = []
    for name in dict.fromkeys([*baseline, *measured]):
        was, now = baseline.get(name), measured.get(name)
        allowed = allowance(*(ratio for ratio in (was, now) if ratio is not None))
        verdicts.append(Verdict(name, was, now, allowed))
    return verdicts


def allowance(*ratios: Ratio) -> Allowance:
    """The loss that these measurements of one ratio allow, from their combined relative spread.

    Spreads of independent measurements add in quadrature.
    """
    spread = math.hypot(*(ratio.spread / ratio.value for ratio in ratios if ratio.value > 0))
    measured = SPREADS * spread
    reason = f"{SPREADS:g} x combined spread {spread:.1%}"
    if not measured > MIN_ALLOWED:
        return Allowance(MIN_ALLOWED, f"at least {MIN_ALLOWED:.0%}; {reason} is less")
    if measured > MAX_ALLOWED:
        return Allowance(MAX_ALLOWED, f"at most {MAX_ALLOWED:.0%}; {reason} is more")
    return Allowance(measured, reason)


MIN_DIFFERENCE = 0.02
"""Smaller differences between two checkouts never count. Chosen, not measured: compare a checkout with itself."""
FEW_ROUNDS = 4
"""With fewer rounds the quartiles say little, so the whole range counts as noise."""


def noise_of(ratios: Sequence[float], spread: float) -> float:
    """How far the median of `new / old` must be from 1 to count: twice the spread, or the range of a few rounds."""
    measured = 2.0 * spread if len(ratios) >= FEW_ROUNDS else max(ratios) - min(ratios)
    return max(MIN_DIFFERENCE, measured)


def difference(ratios: Sequence[float], median: float, spread: float) -> str:
    """Compare two checkouts: `faster`, `slower` or `no difference beyond the noise`.

    Args:
        ratios: `new / old` of each round.
        median: Median of `ratios`.
        spread: Half their interquartile range.
    """
    if len(ratios) < 2 or not abs(median - 1.0) > noise_of(ratios, spread):
        return "no difference beyond the noise"
    return "faster beyond the noise" if median > 1.0 else "slower beyond the noise"

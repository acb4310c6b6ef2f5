from __future__ import annotations

import math

import pytest
from benchmarks.guard import LEAST_LOSS, MOST, Ratio, difference, judge, tolerance

CALM = Ratio(2.0, 0.02)


def _fell(was: Ratio, now: Ratio) -> bool:
    (verdict,) = judge({"parallel": was}, {"parallel": now})
    return verdict.fell


@pytest.mark.parametrize(("value", "fell"), [(2.0, False), (2.6, False), (1.91, False), (1.89, True), (0.1, True)])
def test_a_calm_ratio_may_lose_a_twentieth(value: float, fell: bool) -> None:
    assert _fell(CALM, Ratio(value, 0.02)) is fell


def test_a_ratio_that_varies_by_itself_may_lose_more() -> None:
    assert _fell(CALM, Ratio(1.3, 0.02))
    assert not _fell(Ratio(2.0, 0.3), Ratio(1.3, 0.02))
    assert not _fell(CALM, Ratio(1.3, 0.2))


def test_noise_does_not_excuse_half_the_speed() -> None:
    assert _fell(CALM, Ratio(0.9, 5.0))
    assert tolerance(CALM, Ratio(0.9, 5.0)) == MOST


def test_tolerance_adds_independent_spreads() -> None:
    assert tolerance(Ratio(1.0, 0.0), Ratio(2.0, 0.0)) == LEAST_LOSS
    assert tolerance(Ratio(1.0, 0.09), Ratio(2.0, 0.24)) == pytest.approx(3 * 0.15)


def test_a_ratio_that_is_gone_or_not_a_number_fell() -> None:
    (gone,) = judge({"parallel": CALM}, {})
    assert gone.fell
    assert _fell(CALM, Ratio(math.nan, 0.0))
    assert _fell(CALM, Ratio(0.0, 0.0))


def test_a_new_ratio_passes_and_is_listed_last() -> None:
    verdicts = judge({"b": CALM}, {"a": Ratio(0.1, 0.0), "b": CALM})
    assert [verdict.name for verdict in verdicts] == ["b", "a"]
    assert not any(verdict.fell for verdict in verdicts)


SAME = "no difference beyond the noise"


@pytest.mark.parametrize(
    ("ratios", "median", "spread", "expected"),
    [
        ([1.10, 1.11, 1.12, 1.10], 1.105, 0.005, "faster"),
        ([0.90, 0.91, 0.89, 0.90], 0.90, 0.005, "slower"),
        ([1.01, 1.01, 1.01, 1.01], 1.01, 0.0, SAME),
        ([0.8, 1.1, 1.2, 1.0, 1.3], 1.1, 0.1, SAME),
        ([1.02, 1.18], 1.10, 0.04, SAME),
        ([1.5], 1.5, 0.0, SAME),
        ([1.0, 1.0], float("nan"), 0.0, SAME),
    ],
)
def test_two_checkouts_differ_beyond_the_noise_only(
    ratios: list[float], median: float, spread: float, expected: str
) -> None:
    assert difference(ratios, median, spread) == expected

from __future__ import annotations

import math

import pytest

from benchmarks.harness.guard import MAX_ALLOWED, MIN_ALLOWED, TOO_NOISY, Ratio, Verdict, allowance, difference, judge
from benchmarks.suites import ratios as suite

CALM = Ratio(2.0, 0.02)


def _verdict(was: Ratio, now: Ratio) -> Verdict:
    (verdict,) = judge({"parallel": was}, {"parallel": now})
    return verdict


def _fell(was: Ratio, now: Ratio) -> bool:
    return _verdict(was, now).fell


@pytest.mark.parametrize(("value", "fell"), [(2.0, False), (2.6, False), (1.901, False), (1.899, True), (0.1, True)])
def test_a_ratio_with_small_spreads_may_lose_five_percent(value: float, fell: bool) -> None:
    assert _fell(CALM, Ratio(value, 0.02)) is fell


# Relative spreads of 3 % and 4 % combine to 5 %; three times that is 15 %, so 1.70 is the minimum.
@pytest.mark.parametrize(("value", "fell"), [(1.702, False), (1.698, True)])
def test_a_loss_passes_just_within_three_combined_spreads_and_fails_just_beyond(value: float, fell: bool) -> None:
    assert _fell(Ratio(2.0, 0.06), Ratio(value, 0.04 * value)) is fell


@pytest.mark.parametrize("value", [1.74, 1.71])
def test_each_side_alone_explains_less_than_both_together(value: float) -> None:
    quiet = 0.0001
    assert _fell(Ratio(2.0, 0.06), Ratio(value, quiet)) is (value < 2.0 * (1 - 0.09))
    assert _fell(Ratio(2.0, quiet), Ratio(value, 0.04 * value)) is (value < 2.0 * (1 - 0.12))


def test_a_loss_of_half_the_speed_fails_despite_noise() -> None:
    assert _fell(CALM, Ratio(0.999, 5.0))
    assert not _fell(CALM, Ratio(1.001, 5.0))
    assert allowance(CALM, Ratio(0.9, 5.0)).share == MAX_ALLOWED


def test_the_allowance_is_the_combined_spread_between_its_bounds() -> None:
    assert allowance(Ratio(1.0, 0.0), Ratio(2.0, 0.0)).share == MIN_ALLOWED
    assert allowance(Ratio(1.0, 0.03), Ratio(2.0, 0.08)).share == pytest.approx(3 * 0.05)


@pytest.mark.parametrize(
    ("spread", "reason"),
    [
        (0.01, "at least 5%; 3 x combined spread 1.0% is less"),
        (0.05, "3 x combined spread 5.0%"),
        (0.30, "at most 50%; 3 x combined spread 30.0% is more"),
    ],
)
def test_the_allowance_states_its_reason(spread: float, reason: str) -> None:
    assert allowance(Ratio(1.0, spread)).reason == reason


def test_the_printed_table_has_loss_allowance_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = judge(
        {"a": Ratio(2.0, 0.06), "b": CALM}, {"a": Ratio(1.6, 0.064), "b": Ratio(1.98, 0.0), "c": Ratio(1.0, 0.0)}
    )
    assert suite._compare(verdicts) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "| a | 2.00 ± 0.06 | 1.60 ± 0.06 | 20.0% | 15.0% | 3 x combined spread 5.0% | FELL |" in lines
    assert (
        "| b | 2.00 ± 0.02 | 1.98 ± 0.00 | 1.0% | 5.0% | at least 5%; 3 x combined spread 1.0% is less | ok |" in lines
    )
    assert lines[4].endswith("| new: make bench-baseline |")
    assert "a fell: 1.60 ± 0.06, must be at least 1.70." in lines
    assert suite._compare(verdicts[1:]) == 0


def test_a_pass_that_noise_makes_worthless_asks_for_another_measurement() -> None:
    noisy = Ratio(2.0, 2.0 * 1.01 * TOO_NOISY / 3)
    assert _verdict(noisy, Ratio(2.0, 0.0)).word == "ok, but noisy: measure again"
    assert _verdict(CALM, CALM).word == "ok"


def test_a_missing_ratio_or_nan_fell() -> None:
    (gone,) = judge({"parallel": CALM}, {})
    assert gone.fell
    assert _fell(CALM, Ratio(math.nan, 0.0))
    assert _fell(CALM, Ratio(0.0, 0.0))


def test_a_new_ratio_passes_and_is_listed_last() -> None:
    verdicts = judge({"b": CALM}, {"a": Ratio(0.1, 0.0), "b": CALM})
    assert [verdict.name for verdict in verdicts] == ["b", "a"]
    assert not any(verdict.fell for verdict in verdicts)


def test_the_stored_baseline_has_a_spread_for_every_ratio_of_the_suite() -> None:
    baseline = suite._read(suite.BASELINE)
    assert set(baseline) == set(suite.MEANING)
    assert all(0.0 < ratio.spread < ratio.value for ratio in baseline.values())


SAME = "no difference beyond the noise"


@pytest.mark.parametrize(
    ("ratios", "median", "spread", "expected"),
    [
        ([1.10, 1.11, 1.12, 1.10], 1.105, 0.005, "faster beyond the noise"),
        ([0.90, 0.91, 0.89, 0.90], 0.90, 0.005, "slower beyond the noise"),
        ([1.01, 1.01, 1.01, 1.01], 1.01, 0.0, SAME),
        ([0.8, 1.1, 1.2, 1.0, 1.3], 1.1, 0.1, SAME),
        ([1.02, 1.18], 1.10, 0.04, SAME),
        ([1.5], 1.5, 0.0, SAME),
        ([1.0, 1.0], float("nan"), 0.0, SAME),
    ],
)
def test_two_checkouts_differ_only_beyond_the_noise(
    ratios: list[float], median: float, spread: float, expected: str
) -> None:
    assert difference(ratios, median, spread) == expected

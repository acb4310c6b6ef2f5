"""Which `grad_shards` and `learner_threads` are tried, and the recommendation from measured speeds."""

from __future__ import annotations

import pytest

from paceline.insight.learner_settings import PAGE, LearnerSetting, LearnerSpeeds, alternatives, turn_size
from paceline.measure.cpu import CpuSupply

CURRENT, OTHER = LearnerSetting(2, 1), LearnerSetting(4, 1)


def speeds(**others: list[float]) -> LearnerSpeeds:
    """The current setting at 10 updates a second, and others by name."""
    named = {"four": OTHER, "whole": LearnerSetting(1, 1), "threads": LearnerSetting(1, 2)}
    rounds = len(next(iter(others.values())))
    return LearnerSpeeds({CURRENT: (10.0,) * rounds, **{named[name]: tuple(each) for name, each in others.items()}})


def test_the_fastest_is_named_in_one_line() -> None:
    found = speeds(four=[13.0, 13.5, 12.5, 13.0, 13.0], whole=[11.0, 11.2, 11.1, 11.0, 10.9])
    assert found.faster() == OTHER
    assert found.speedup(OTHER)[0] == pytest.approx(1.3)
    assert found.hint(0.37) == (
        "grad_shards 4 would learn 1.30 ± 0.00 times as fast as grad_shards 2 here; learning takes 37 % of the time. "
        f"It changes the result (see {PAGE}): --grad-shards 4"
    )


def test_the_hint_names_both_settings_if_both_differ() -> None:
    hint = speeds(threads=[15.0, 15.0, 15.0]).hint(1.0)
    assert hint is not None
    assert "grad_shards 1 with learner_threads 2 would learn" in hint
    assert "as fast as grad_shards 2 with learner_threads 1 here" in hint
    assert hint.endswith("--grad-shards 1 --learner-threads 2")


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param([13.0, 13.0], id="too few rounds"),
        pytest.param([10.4, 10.4, 10.4, 10.4, 10.4], id="too little to be worth it"),
        pytest.param([12.0, 10.1, 16.0, 10.1, 14.0], id="within the noise"),
        pytest.param([13.0, 13.0, 13.0, 13.0, 9.9], id="slower in one round"),
        pytest.param([7.0, 7.0, 7.0, 7.0, 7.0], id="slower"),
    ],
)
def test_no_recommendation_within_the_noise(rates: list[float]) -> None:
    assert speeds(four=rates).faster() is None
    assert speeds(four=rates).hint(0.5) is None


def test_a_change_of_machine_speed_between_rounds_is_not_noise() -> None:
    found = LearnerSpeeds({CURRENT: (10.0, 20.0, 5.0), OTHER: (13.0, 26.0, 6.5)})
    assert found.speedup(OTHER) == pytest.approx((1.3, 0.0))


def test_other_programs_are_mentioned() -> None:
    rates = {CURRENT: (10.0,) * 3, OTHER: (13.0,) * 3}
    busy, quiet = (LearnerSpeeds(rates, CpuSupply(cores=2, own=0.8, others=others)) for others in (1.2, 0.1))
    assert "here, while other programs or virtual machines used 60% of the 2 cores; learning" in (busy.hint(0.5) or "")
    assert busy.json(0.5)["others_share"] == 0.6
    assert "other programs" not in (quiet.hint(0.5) or "")
    assert "other programs" not in (LearnerSpeeds(rates).hint(0.5) or "")


def test_the_json_has_windows_medians_and_the_recommendation() -> None:
    found = speeds(four=[13.0, 13.0, 13.0]).json(0.25)
    assert found["current"] == {"grad_shards": 2, "learner_threads": 1}
    assert found["faster"] == {"grad_shards": 4, "learner_threads": 1}
    assert found["learn_share"] == 0.25
    assert [one["updates_per_s"] for one in found["settings"]] == [10.0, 13.0]
    assert found["settings"][1]["speedup"] == pytest.approx(1.3)
    assert speeds(four=[10.0, 10.0, 10.0]).json(0.25)["faster"] is None


def pairs(current: LearnerSetting = CURRENT, **sizes: int) -> list[tuple[int, int]]:
    sizes = {"rows": 1024, "weights": 10_000, "processes": 2, "cores": 2, **sizes}
    return [(one.grad_shards, one.learner_threads) for one in alternatives(current, **sizes)]


def test_settings_tried_on_two_cores() -> None:
    assert pairs() == [(2, 1), (1, 1), (1, 2), (4, 1), (8, 1)]


def test_shards_that_do_not_divide_the_minibatch_are_not_tried() -> None:
    assert [count for count, _ in pairs(rows=6)] == [2, 1, 1]


def test_threads_need_no_more_than_the_cores() -> None:
    assert all(threads == 1 for _, threads in pairs(cores=1, processes=1))
    many = pairs(LearnerSetting(4, 1), cores=8, processes=8)
    assert {(4, 2), (1, 8)} <= set(many)
    assert (4, 4) not in many


def test_large_networks_are_not_given_more_memory_for_it() -> None:
    assert max(count for count, _ in pairs(weights=100_000_000)) == 2


@pytest.mark.parametrize(
    ("minibatch_s", "expected"),
    [(0.001, (4, 4)), (0.024, (2, 4)), (0.09, (1, 2)), (5.0, (1, 1))],
    ids=["as in training", "fewer epochs", "part of an epoch", "one minibatch at least"],
)
def test_a_timed_update_fits_into_its_target_duration(minibatch_s: float, expected: tuple[int, int]) -> None:
    assert turn_size(minibatch_s, minibatches=4, n_epochs=4) == expected


def test_the_current_setting_is_always_measured() -> None:
    assert pairs(LearnerSetting(3, 5))[0] == (3, 5)

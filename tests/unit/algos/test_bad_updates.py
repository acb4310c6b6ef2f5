"""Updates with a non-finite gradient are skipped, counted and announced; too many in a row end training."""

from __future__ import annotations

import math

import pytest

from paceline.algos.bad_updates import MAX_BAD_UPDATES, BadUpdates
from paceline.errors import LearnerError

NAN, INF = math.nan, math.inf


def announced(bad: BadUpdates, skipped: int) -> list[int]:
    """Skip this many updates, none in a row; returns the counts after which there was a note."""
    counts = []
    for _ in range(skipped):
        assert bad.is_bad(NAN, 0)
        assert not bad.is_bad(1.0, 0)
        if bad.notes():
            counts.append(bad.count)
    return counts


@pytest.mark.parametrize(("norm", "skipped"), [(0.0, False), (3e38, False), (NAN, True), (INF, True), (-INF, True)])
def test_an_update_is_skipped_if_the_norm_of_its_gradient_is_not_finite(norm: float, skipped: bool) -> None:
    bad = BadUpdates()
    assert bad.is_bad(norm, 0) is skipped
    assert bad.count == int(skipped)


def test_ten_in_a_row_end_training_and_name_the_update() -> None:
    bad = BadUpdates()
    for _ in range(MAX_BAD_UPDATES - 1):
        assert bad.is_bad(NAN, 37)
    assert not bad.is_bad(1.0, 37), "a finite gradient starts the row again"
    for _ in range(MAX_BAD_UPDATES - 1):
        assert bad.is_bad(INF, 37)
    with pytest.raises(LearnerError, match=r"update 37: the gradient was NaN or infinite 10 times in a row"):
        bad.is_bad(NAN, 37)
    assert bad.count == 2 * MAX_BAD_UPDATES - 1


def test_the_first_skipped_update_is_announced_and_then_each_power_of_two() -> None:
    bad = BadUpdates()
    assert bad.notes() == []
    assert announced(bad, 40) == [1, 2, 4, 8, 16, 32]
    assert bad.notes() == []


def test_a_note_has_the_count_and_what_to_do() -> None:
    bad = BadUpdates()
    bad.count = 2500  # A3C adds the counts of its workers
    (note,) = bad.notes()
    assert note.startswith("skipped updates so far: 2,500 (the gradient was NaN or infinite; 10 in a row end the run)")
    assert "--learning-rate" in note
    bad.count = 4095
    assert bad.notes() == []
    bad.count = 5000
    assert "5,000" in bad.notes()[0]


def test_one_nan_in_a_batch_does_not_end_training_if_each_epoch_is_one_minibatch() -> None:
    bad = BadUpdates(epochs=12)
    for _ in range(23):
        assert bad.is_bad(NAN, 0)
    assert "24 in a row end the run" in bad.notes()[0]
    with pytest.raises(LearnerError, match="24 times in a row"):
        bad.is_bad(NAN, 0)


def test_a_resumed_run_goes_on_counting_and_does_not_repeat_a_note() -> None:
    bad, resumed = BadUpdates(), BadUpdates()
    announced(bad, 4)
    for _ in range(MAX_BAD_UPDATES - 1):
        bad.is_bad(NAN, 0)
    resumed.load(bad.state())
    assert resumed.count == 4 + MAX_BAD_UPDATES - 1
    assert resumed.notes() == []
    with pytest.raises(LearnerError):
        resumed.is_bad(NAN, 0)
    fresh = BadUpdates()
    fresh.load(BadUpdates().state())
    assert announced(fresh, 2) == [1, 2]

"""`CollectTimes`: sums."""

from __future__ import annotations

from paceline.collect.times import CollectTimes


def test_sums_are_field_by_field() -> None:
    one = CollectTimes(1.0, 2.0, 4.0, 8.0, 16.0)
    assert one.plus(CollectTimes(0.5, 0.25, 0.125, 3.0, 5.0)) == CollectTimes(1.5, 2.25, 4.125, 11.0, 21.0)

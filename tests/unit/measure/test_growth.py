"""Warnings about processes whose memory keeps growing."""

from __future__ import annotations

from paceline.measure.growth import SETTLE_S, MemoryGrowth


def test_memory_growth_is_reported_and_again_when_doubled() -> None:
    growth, names = MemoryGrowth(), {7: "worker 0 (pid 7)", 8: "worker 1 (pid 8)"}
    assert growth(0.0, {7: 100.0, 8: 300.0}, names) == []
    assert growth(SETTLE_S, {7: 300.0, 8: 300.0}, names) == [], "this sample is the baseline"
    assert growth(SETTLE_S + 60, {7: 420.0, 8: 330.0}, names) == []
    [note] = growth(SETTLE_S + 120, {7: 500.0, 8: 330.0}, names)
    assert "worker 0 (pid 7): its memory (PSS) grew from 300 to 500 MB, 100 MB a minute" in note
    assert growth(SETTLE_S + 180, {7: 690.0, 8: 330.0}, names) == []
    assert len(growth(SETTLE_S + 240, {7: 700.0, 8: 330.0}, names)) == 1
    assert growth(300.0, {9: 900.0}, {9: "worker 0 (pid 9)"}) == [], "a new process has a new baseline"

"""What a result states about the machine it was measured on."""

from __future__ import annotations

from itertools import accumulate

import pytest

from benchmarks.harness import host
from benchmarks.harness.host import slow_percent
from benchmarks.harness.results import describe_load, interleave


def test_slow_percent_is_a_percentage() -> None:
    assert 0.0 <= slow_percent(0.05) <= 100.0


def test_slow_share_is_the_time_in_repetitions_longer_than_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = [1.0] * 6 + [4.0]
    times = [
        0.0,
        *(time for end, one in zip(accumulate(durations), durations, strict=True) for time in (end - one, end)),
    ]
    monkeypatch.setattr(host, "perf_counter", iter([*times, times[-1]]).__next__)
    assert host._slow_share(10.0, -1) == pytest.approx(0.4)


def test_other_virtual_machines_are_described_if_they_were_measured() -> None:
    assert describe_load({"busy_percent": [1.0, 2.0]}) == "other programs used 1 % of the cores before, 2 % after."
    text = describe_load({"busy_percent": [1.0, 2.0], "slow_percent": [12.3, 0.0]})
    assert text.endswith("; other virtual machines slowed the cores for 12 % of the time before, 0 % after.")


def test_interleave_alternates_the_order_of_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = interleave({"old": lambda: measure("old"), "new": lambda: measure("new")}, 2)
    assert order == ["old", "new", "new", "old"]
    assert found == {"old": [1.0, 4.0], "new": [2.0, 3.0]}
    assert "round 2 of 2" in capsys.readouterr().err

"""What a result says of the machine it was measured on."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from benchmarks.host import slow_percent


def test_how_slow_the_cores_are_is_a_share_of_their_time() -> None:
    assert 0.0 <= slow_percent(0.05) <= 100.0


def test_neighbours_are_named_where_they_were_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))  # as benchmarks find each other
    results = importlib.import_module("results")
    assert results.others({"busy_percent": [1.0, 2.0]}) == "others took 1 % of the cores before, 2 % after."
    looked = results.others({"busy_percent": [1.0, 2.0], "slow_percent": [12.3, 0.0]})
    assert looked.endswith("; neighbours on the host made them slow for 12 % of the time before, 0 % after.")

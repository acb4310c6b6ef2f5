"""Shares of the groups, and replies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.runtime.protocol import shares


@given(st.integers(1, 40), st.integers(0, 40))
def test_shares_cover_all_groups_evenly(groups: int, workers: int) -> None:
    workers = min(groups, workers)
    parts = shares(groups, workers)
    assert [part.worker for part in parts] == list(range(max(1, workers)))
    assert [g for part in parts for g in range(part.first_group, part.first_group + part.groups)] == list(range(groups))
    assert max(p.groups for p in parts) - min(p.groups for p in parts) <= 1

"""How many nodes and workers a Ray cluster has room for."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.runtime.ray.cluster import _room


def nodes_with(*cpus: float) -> list[dict[str, Any]]:
    return [{"Alive": True, "Resources": {"CPU": count}} for count in cpus]


@pytest.mark.parametrize(
    ("cpus", "nodes", "workers", "groups", "expected"),
    [
        ((8, 8), None, None, 32, (2, 8)),
        ((8, 4), None, None, 32, (2, 4)),
        ((8, 4), 1, None, 32, (1, 8)),
        ((8, 4), None, 6, 32, (1, 6)),
        ((8, 8, 8), None, 4, 8, (2, 4)),
        ((8, 8), None, None, 8, (2, 4)),
        ((8, 8, 0), 2, 3, 8, (2, 3)),
        ((2,), None, None, 1, (1, 1)),
    ],
)
def test_as_much_as_there_is_room_for(
    cpus: tuple[int, ...], nodes: int | None, workers: int | None, groups: int, expected: tuple[int, int]
) -> None:
    assert _room(nodes_with(*cpus), nodes, workers, groups) == expected


@pytest.mark.parametrize(
    ("cpus", "nodes", "workers", "text"),
    [
        ((8, 8), 3, None, r"nodes=3: the Ray cluster has 2 with 1 CPU\(s\) or more \(its nodes have \[8, 8\]\)"),
        ((8, 8), None, 9, r"nodes=1: the Ray cluster has 0 with 9 CPU"),
        ((0,), None, None, r"has 0 with 1 CPU"),
        ((8, 8), 2, 8, r"nodes\*workers_per_node = 2\*8 = 16: .*groups \(8\)"),
    ],
)
def test_no_more_than_that(cpus: tuple[int, ...], nodes: int | None, workers: int | None, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _room(nodes_with(*cpus), nodes, workers, 8)

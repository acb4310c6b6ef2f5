"""Driver data is stored once per content, and sent to each pool that does not have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from numpy.typing import NDArray
from tests.jobs import fields
from tests.unit.runtime.ray.nodes import RecorderTransfer

from paceline.memory.shared import Arena
from paceline.runtime.protocol import Share
from paceline.runtime.ray.cluster import RayCluster
from paceline.runtime.ray.dispatch import Dispatch
from paceline.runtime.ray.placement import PlacedPool


class Store:
    """Counts what is put into the object store."""

    def __init__(self) -> None:
        self.stored: list[list[Any]] = []

    def put_parts(self, parts: Sequence[NDArray[Any]]) -> int:
        self.stored.append([part.tolist() for part in parts])
        return len(self.stored)


class Rig:
    def __init__(self, arena: Arena, transfer: RecorderTransfer) -> None:
        self.store = Store()
        self.transfer, self.arena = transfer, arena
        self.dispatch = Dispatch(cast(Any, transfer), arena, cast(RayCluster, self.store))
        self.pools = [PlacedPool(key, cast(Any, None), key, [Share(key, key, 1)], set()) for key in range(2)]

    def due(self, pool: int, command: str = "collect", **options: bool) -> dict[str, Any]:
        return self.dispatch.due(self.pools[pool], command, 1, **options)


@pytest.fixture
def rig() -> Iterator[Rig]:
    arena = Arena.create(fields(1))
    arena["mode"][0] = 3
    yield Rig(arena, RecorderTransfer(token=1))
    arena.close()


def test_equal_content_is_stored_once_and_sent_once_to_each_pool(rig: Rig) -> None:
    assert rig.due(0) == {"mode": 1}
    assert rig.due(1) == {"mode": 1}, "the same reference"
    assert rig.due(0) == rig.due(1) == {}
    assert rig.store.stored == [[[3]]]


def test_new_content_is_stored_and_sent_again(rig: Rig) -> None:
    rig.due(0)
    rig.arena["mode"][0], rig.transfer.current = 4, 2
    assert rig.due(0) == {"mode": 2}
    assert rig.due(1) == {"mode": 2}, "a pool that missed one content gets the newest"
    assert rig.store.stored == [[[3]], [[4]]]


def test_a_load_without_a_token_is_sent_with_every_call_but_not_as_news(rig: Rig) -> None:
    rig.transfer.current = None
    assert rig.due(0) == {"mode": 1}
    assert rig.due(0) == {"mode": 2}
    assert rig.due(0, only_news=True) == {}


def test_news_are_loads_that_have_changed(rig: Rig) -> None:
    assert rig.due(0, only_news=True) == {"mode": 1}
    assert rig.due(0, only_news=True) == {}


def test_a_call_that_needs_no_load_gets_none(rig: Rig) -> None:
    assert rig.due(0, "share") == {}
    assert rig.store.stored == []

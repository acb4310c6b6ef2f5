"""Arrays that gradient workers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.memory.shards import SAMPLE, Shards
from paceline.memory.shared import Arena
from paceline.ops.surrogate import TERMS


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena.create(Shards.fields(samples=12, shards=4, weights=5))
    yield made
    made.close()


def test_every_shard_has_its_own_row(arena: Arena) -> None:
    shards = Shards(arena)
    assert shards.samples.shape == (12, len(SAMPLE))
    assert shards.order.shape == (12,)
    assert shards.order.dtype == torch.int64
    assert shards.grads.shape == (4, 5)
    assert shards.terms.shape == (4, len(TERMS))


def test_workers_see_minibatch_and_gradients_of_others(arena: Arena) -> None:
    driver, worker = Shards(arena), Shards(arena)
    driver.minibatch = 3, 9, 0.5, 2.0
    assert worker.minibatch == (3, 9, 0.5, 2.0)
    assert [type(number) for number in worker.minibatch] == [int, int, float, float]
    worker.grads[2] = 1.5
    assert driver.grads[2].tolist() == [1.5] * 5
    assert not driver.grads[[0, 1, 3]].any()


def test_fewer_shards_than_rows_use_the_first_rows(arena: Arena) -> None:
    few = Shards(arena, 3)
    assert (len(few.grads), len(few.terms)) == (3, 3)
    assert [stop - start for start, stop in few.bounds(0, 12)] == [4, 4, 4]


@given(st.integers(0, 50), st.integers(0, 100))
def test_bounds_cover_a_minibatch_in_order_and_evenly(start: int, length: int) -> None:
    arena = Arena.create(Shards.fields(samples=12, shards=4, weights=5))
    try:
        bounds = Shards(arena).bounds(start, start + length)
    finally:
        arena.close()
    assert len(bounds) == 4
    assert [row for first, stop in bounds for row in range(first, stop)] == list(range(start, start + length))
    sizes = [stop - first for first, stop in bounds]
    assert max(sizes) - min(sizes) <= 1

"""`SumTree` against its definition, a running sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.ops.sum_tree import SumTree


def found_by_definition(priority: NDArray[np.float64], mass: float) -> int:
    running = 0.0
    for item, one in enumerate(priority):
        running += one
        if mass < running:
            return item
    raise AssertionError("more than all")


@given(
    sizes=st.integers(1, 3000),
    seed=st.integers(0, 10_000),
    zeros=st.floats(0, 0.9),
)
def test_finds_the_item_that_the_running_sum_passes(sizes: int, seed: int, zeros: float) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers: their sums are exact, whatever the order.
    priority = rng.integers(1, 9, sizes).astype(np.float64) * (rng.random(sizes) >= zeros)
    if not priority.sum():
        priority[rng.integers(sizes)] = 1.0
    tree = SumTree(sizes)
    order = rng.permutation(sizes)
    for part in np.array_split(order, 3):
        tree.set(part, priority[part])
    assert tree.total == priority.sum()
    share = rng.random(32)
    assert tree.find(share).tolist() == [found_by_definition(priority, one * tree.total) for one in share]
    assert tree.get(order).tolist() == priority[order].tolist()


@pytest.mark.parametrize("size", [1, 16, 17, 256, 257, 5000])
def test_fill_is_set_for_all(size: int) -> None:
    rng = np.random.default_rng(0)
    filled, set_one_by_one, value = SumTree(size), SumTree(size), rng.random(size)
    filled.fill(value)
    set_one_by_one.set(np.arange(size), value)
    share = rng.random(200)
    assert filled.total == set_one_by_one.total
    assert filled.find(share).tolist() == set_one_by_one.find(share).tolist()


def test_items_of_priority_zero_are_never_found() -> None:
    rng = np.random.default_rng(1)
    tree = SumTree(5000)
    able = rng.choice(5000, 50, replace=False)
    tree.set(able, rng.random(50) * 1e-9 + 1e-12)
    share = np.concatenate([rng.random(2000), [0.0, 1.0, np.nextafter(1.0, 0.0)]])
    assert set(tree.find(share).tolist()) <= set(able.tolist())


def test_draws_are_proportional_to_priorities() -> None:
    rng = np.random.default_rng(2)
    priority = rng.random(40)
    tree = SumTree(40)
    tree.set(np.arange(40), priority)
    drawn = np.bincount(tree.find(rng.random(200_000)), minlength=40)
    np.testing.assert_allclose(drawn / 200_000, priority / priority.sum(), atol=0.003)

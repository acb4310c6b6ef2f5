"""Gathering of minibatch rows."""

from __future__ import annotations

import numpy as np

from paceline.memory.gather import Gather


def test_gather_returns_rows_in_any_number_and_order() -> None:
    rng = np.random.default_rng(0)
    arrays = {"obs": rng.integers(0, 255, (50, 3, 2), np.uint8), "sample": rng.normal(size=(50, 4)).astype(np.float32)}
    gather = Gather(arrays)
    for count in (7, 20, 1, 20, 33):
        index = rng.permutation(50)[:count]
        taken = gather(index)
        for name, array in arrays.items():
            assert taken[name].dtype == array.dtype
            assert np.array_equal(taken[name], array[index])


def test_gather_reads_current_data_and_reuses_its_buffers() -> None:
    array = np.zeros((4, 2), np.float32)
    gather = Gather({"a": array})
    first = gather(np.array([0, 1]))["a"]
    array[3] = 5.0
    second = gather(np.array([3, 0]))["a"]
    assert second.tolist() == [[5.0, 5.0], [0.0, 0.0]]
    assert np.shares_memory(first, second)

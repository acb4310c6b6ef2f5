"""NaN and infinite values are found at any position."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paceline.collect import finite
from paceline.collect.finite import Bad, first_bad


@settings(deadline=None)
@given(data=st.data(), shape=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 5)))
def test_the_first_nan_is_found_for_any_chunk_size(data: st.DataObject, shape: Any) -> None:
    array = np.zeros(shape, np.float32)
    places = st.tuples(*(st.integers(0, side - 1) for side in shape))
    bad = sorted(data.draw(st.lists(places, max_size=3)))
    for place in bad:
        array[place] = data.draw(st.sampled_from([np.inf, -np.inf]))
    expected = next((Bad("obs", t, i, float(array[t, i, k])) for t, i, k in bad), None)
    fine: dict[str, NDArray[Any]] = {"counts": np.zeros((2, 2), np.int64), "nothing": np.zeros((3, 2, 0), np.float32)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finite, "AT_ONCE", data.draw(st.integers(1, 40)))
        found = first_bad({**fine, "obs": array})
    assert found == expected


def test_nan_check_memory_does_not_grow_with_the_rollout() -> None:
    array = np.zeros((64, 32, 1024), np.float32)
    tracemalloc.start()
    try:
        assert first_bad({"obs": array}) is None
        assert tracemalloc.get_traced_memory()[1] < array.size // 8, "a byte for each number would be eight times that"
    finally:
        tracemalloc.stop()

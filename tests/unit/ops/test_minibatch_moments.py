"""Mean and standard deviation of each minibatch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.ops.minibatch_moments import minibatch_moments


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 1000))
def test_each_segment_is_standardised_separately(sizes: list[int], seed: int) -> None:
    values = (3.0 + 2.0 * np.random.default_rng(seed).normal(size=sum(sizes))).astype(np.float32)
    cuts = [0, *np.cumsum(sizes).tolist()]
    found = minibatch_moments(values, cuts)
    assert len(found) == len(sizes)
    for (mean, scale), start, stop in zip(found, cuts, cuts[1:], strict=False):
        piece = torch.from_numpy(values[start:stop]).double()
        if len(piece) == 1:
            assert (mean, scale) == (0.0, 1.0)
            continue
        assert mean == pytest.approx(float(piece.mean()), abs=1e-9)
        assert scale == pytest.approx(1.0 / (float(piece.std()) + 1e-8), rel=1e-9)


def test_constant_values_become_zeros() -> None:
    ((mean, scale),) = minibatch_moments(np.full(7, 2.5, np.float32), [0, 7])
    assert (np.full(7, 2.5) - mean) * scale == pytest.approx(np.zeros(7))

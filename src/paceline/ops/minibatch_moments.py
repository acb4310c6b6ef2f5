"""Mean and standard deviation of every minibatch in one pass: all workers wait while the learner computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_EPSILON = 1e-8


def minibatch_moments(values: NDArray[np.float32], cuts: Sequence[int]) -> list[tuple[float, float]]:
    """Return (mean, 1 / standard deviation) of each segment of an array.

    Args:
        values: `[N]`.
        cuts: Start of each segment, increasing from 0, then N. A segment of one value gets (0, 1): it stays unchanged.
    """
    starts = np.array(cuts[:-1], np.intp)
    counts = np.diff(cuts)
    wide = values.astype(np.float64)
    means = np.add.reduceat(wide, starts) / counts
    wide -= np.repeat(means, counts)
    deviations = np.sqrt(np.add.reduceat(np.square(wide, out=wide), starts) / np.maximum(counts - 1, 1))
    scales = zip(means.tolist(), (1.0 / (deviations + _EPSILON)).tolist(), counts, strict=True)
    return [(mean, scale) if count > 1 else (0.0, 1.0) for mean, scale, count in scales]

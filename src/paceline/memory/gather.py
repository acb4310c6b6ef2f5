"""Gathers minibatch rows into contiguous memory: the only copy between a slot and the network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Gather:
    """Takes rows of several arrays by index, into buffers that are reused.

    Args:
        arrays: [N, ...] each.
    """

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._reserve(0)

    def __call__(self, index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the rows by name; the next call overwrites them."""
        if len(index) > self._rows:
            self._reserve(len(index))
        taken = {name: room[: len(index)] for name, room in self._room.items()}
        for name, array in self._arrays.items():
            array.take(index, 0, out=taken[name], mode="clip")  # indices are valid; "raise" would make one more copy
        return taken

    def _reserve(self, rows: int) -> None:
        self._rows = rows
        self._room = {name: np.empty((rows, *array.shape[1:]), array.dtype) for name, array in self._arrays.items()}

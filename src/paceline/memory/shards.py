"""Arrays that gradient workers share: prepared samples, the shuffled order of an epoch, and one gradient per shard.

    driver: samples, order ──► worker: shard of a minibatch ──► grads[shard] ──► driver: sum in order, step

Every shard has its own row, so no lock is needed, and the sum does not depend on which worker computed which shard.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from paceline.memory.shared import Arrays, Field
from paceline.ops.surrogate import TERMS

SAMPLE = ("log_prob", "advantage", "returns", "value")
"""Columns of `samples`, in one array so that a minibatch takes one gather instead of four."""


class Shards:
    """The shared arrays, as tensors.

    Args:
        arena: Shared memory with `fields`, or private arrays.
        count: Number of shards per minibatch; None uses all rows of the arena.
    """

    def __init__(self, arena: Arrays, count: int | None = None) -> None:
        self.samples: Tensor = torch.from_numpy(arena["samples"])  # [N, 4]
        self.order: Tensor = torch.from_numpy(arena["order"])  # [N]  rows of the batch, shuffled
        self._minibatch, self._clip_range = arena["minibatch"], arena["clip_range"]
        self.grads: Tensor = torch.from_numpy(arena["grads"][:count])  # [S, P]
        self.terms: Tensor = torch.from_numpy(arena["terms"][:count])  # [S, K]

    @staticmethod
    def fields(samples: int, shards: int, weights: int) -> list[Field]:
        """Return the arena fields for that many samples, shards of a minibatch and parameters."""
        return [
            Field.of("samples", (samples, len(SAMPLE)), np.float32),
            Field.of("order", (samples,), np.int64),
            Field.of("minibatch", (4,), np.float64),
            Field.of("clip_range", (1,), np.float64),
            Field.of("grads", (shards, weights), np.float32),
            Field.of("terms", (shards, len(TERMS)), np.float32),
        ]

    @property
    def minibatch(self) -> tuple[int, int, float, float]:
        """The current minibatch: `order[start:stop]`, and mean and 1 / standard deviation of its advantages."""
        start, stop, mean, inv_std = self._minibatch.tolist()
        return int(start), int(stop), mean, inv_std

    @minibatch.setter
    def minibatch(self, minibatch: tuple[int, int, float, float]) -> None:
        self._minibatch[:] = minibatch

    @property
    def clip_range(self) -> float:
        """Clip range of the present batch."""
        return float(self._clip_range[0])

    @clip_range.setter
    def clip_range(self, clip_range: float) -> None:
        self._clip_range[0] = clip_range

    def bounds(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the start and end of each shard of the minibatch `order[start:stop]`."""
        count = len(self.grads)
        cuts = [start + (stop - start) * shard // count for shard in range(count + 1)]
        return list(itertools.pairwise(cuts))

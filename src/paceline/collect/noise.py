"""Randomness of actions, keyed by (seed, group, step): the same whoever collects the group, and in whatever order."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_ACTIONS = 0xAC71 << 48
"""Keeps this stream apart from every other use of the seed."""


class Noisy(Protocol):
    """Knows what randomness its actions need."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Noise for the actions of `shape` rows, float32 `[*shape, N]`."""


def generator(seed: int, group: int, step: int) -> np.random.Generator:
    """The stream of one group from one step on; counter-based, so any step is reached at once."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, _ACTIONS | group], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))


def draw(head: Noisy, noise: NDArray[np.float32], *, seed: int, first_group: int, group_size: int, step: int) -> None:
    """Fill `noise` [T, n, N] for a rollout that begins at `step`, group by group."""
    steps, n = noise.shape[:2]
    for column in range(0, n, group_size):
        stream = generator(seed, first_group + column // group_size, step)
        noise[:, column : column + group_size] = head.draw_noise(stream, (steps, group_size))

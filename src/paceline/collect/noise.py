"""Action noise, keyed by (seed, group, step): independent of which worker collects a group, and in which order."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_ACTIONS = 0xAC71 << 48
"""Stream tag: separates action noise from every other use of the seed."""


class Noisy(Protocol):
    """An action head that draws the noise its actions need."""

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Noise for the actions of `shape` rows, float32 `[*shape, N]`."""


def generator(seed: int, group: int, step: int) -> np.random.Generator:
    """The random stream of one group, starting at `step`. Philox is counter-based, so seeking to any step is free."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, _ACTIONS | group], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step]))


def draw(head: Noisy, noise: NDArray[np.float32], *, seed: int, first_group: int, group_size: int, step: int) -> None:
    """Fill `noise` [T, n, N] for a rollout that begins at `step`, with one stream per group."""
    steps, n = noise.shape[:2]
    for column in range(0, n, group_size):
        stream = generator(seed, first_group + column // group_size, step)
        noise[:, column : column + group_size] = head.draw_noise(stream, (steps, group_size))

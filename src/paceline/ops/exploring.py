"""Acting on action values: the best legal action, or with probability epsilon any legal one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.ops.q_learning import best_legal

Floats = NDArray[np.float32]


class EpsilonGreedy:
    """A head for `params` that are action values, or advantages: their order is the same.

    Args:
        n: Actions.
        epsilon: How often another than the best is taken; `[rows]` for one each.
    """

    def __init__(self, n: int, epsilon: float | Floats = 0.0) -> None:
        self.n, self.epsilon = n, epsilon

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Uniform numbers `[*shape, 2]`: whether to explore, and where to."""
        return generator.random((*shape, 2), dtype=np.float32)

    def choose(self, params: Floats, noise: Floats, mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Actions `[n]`."""
        action = self.mode(params, mask)
        explore = np.flatnonzero(noise[:, 0] < self.epsilon)
        if len(explore):
            action[explore] = uniform_legal(noise[explore, 1], self.n, None if mask is None else mask[explore])
        return action

    def mode(self, params: Floats, mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """The best legal actions `[n]`."""
        return best_legal(params, mask)


def uniform_legal(uniform: Floats, n: int, mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """A legal action per row, all equally likely.

    Args:
        uniform: [k] in [0, 1).
        n: Actions.
        mask: [k, n] the legal ones; None for all.
    """
    if mask is None:
        return np.minimum((uniform * n).astype(np.int64), n - 1)
    count = np.cumsum(mask, axis=1)
    legal = count[:, -1]
    # The product may round up to the count itself: there is no such action.
    place = np.minimum((uniform * legal).astype(np.int64), legal - 1)
    chosen: NDArray[np.int64] = (count > place[:, None]).argmax(1)
    return chosen

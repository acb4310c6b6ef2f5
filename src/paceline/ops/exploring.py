"""Epsilon-greedy action selection: the best legal action, or with probability epsilon a random legal one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.ops.q_learning import best_legal

Floats = NDArray[np.float32]


class EpsilonGreedy:
    """Action head for `params` that are action values (or dueling advantages, which have the same argmax).

    Args:
        n: Number of actions.
        epsilon: Probability of a uniformly random legal action; an array `[rows]` sets it per row.
    """

    def __init__(self, n: int, epsilon: float | Floats = 0.0) -> None:
        self.n, self.epsilon = n, epsilon

    def draw_noise(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Uniform numbers `[*shape, 2]`: the first decides whether to explore, the second picks the random action."""
        return generator.random((*shape, 2), dtype=np.float32)

    def choose(self, params: Floats, noise: Floats, mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Epsilon-greedy actions `[n]`."""
        action = self.mode(params, mask)
        explore = np.flatnonzero(noise[:, 0] < self.epsilon)
        if len(explore):
            action[explore] = uniform_legal(noise[explore, 1], self.n, None if mask is None else mask[explore])
        return action

    def mode(self, params: Floats, mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Greedy legal actions `[n]`."""
        return best_legal(params, mask)


def uniform_legal(uniform: Floats, n: int, mask: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return one legal action per row, drawn uniformly.

    Args:
        uniform: [k] random numbers in [0, 1).
        n: Number of actions.
        mask: [k, n] legal actions; None if all are legal.
    """
    if mask is None:
        return np.minimum((uniform * n).astype(np.int64), n - 1)
    count = np.cumsum(mask, axis=1)
    legal = count[:, -1]
    # The product may round up to `legal` itself, which is one past the last legal action.
    place = np.minimum((uniform * legal).astype(np.int64), legal - 1)
    chosen: NDArray[np.int64] = (count > place[:, None]).argmax(1)
    return chosen

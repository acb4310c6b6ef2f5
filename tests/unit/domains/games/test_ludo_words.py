"""The bit arithmetic of Ludo, against the same rules piece by piece."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.unit.domains.games.playing import seeds

from paceline.domains.games.ludo import Ludo
from paceline.ops.random_bits import below, draws, mix


class Throws:
    """The dice of a board of the engine, given out one throw after another."""

    def __init__(self, seed: int, used: int = 0) -> None:
        self.key, self.used = mix(seeds(seed)), used

    def __call__(self) -> tuple[int, int, int]:
        number = int(below(draws(self.key, np.array([self.used])), np.uint64(216))[0])
        self.used += 1
        return number // 36 + 1, number // 6 % 6 + 1, number % 6 + 1


def test_dice_are_fair() -> None:
    game = Ludo(1)
    game.reset(np.array([0]), seeds(5))
    throws = Throws(5)
    dice: NDArray[np.int64] = np.array([throws() for _ in range(6000)])
    for which in dice.T:
        share = np.bincount(which, minlength=7)[1:] / len(dice)
        np.testing.assert_allclose(share, 1 / 6, atol=0.02)

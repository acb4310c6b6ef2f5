"""Non-finite gradients (NaN or infinite): skip the update, and stop training after too many in a row."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from paceline.errors import LearnerError

MAX_BAD_UPDATES = 10
"""Non-finite gradients in a row after which training stops, unless a batch is learned from in more epochs."""


class BadUpdates:
    """Counts the updates skipped because of a non-finite gradient, and words the warning about them.

    Args:
        epochs: Passes over a batch. One NaN in a batch makes a gradient of each pass non-finite, all in a row if a
            minibatch is the whole batch. That alone does not stop training.
    """

    def __init__(self, epochs: int = 1) -> None:
        self._most = max(MAX_BAD_UPDATES, 2 * epochs)
        self.count = 0
        self._in_a_row = 0
        self._next_note = 1

    def is_bad(self, norm: float, n_updates: int) -> bool:
        """Whether the update must be skipped.

        Args:
            norm: Norm of the gradient.
            n_updates: Updates applied so far, for the error text.

        Raises:
            LearnerError: Too many gradients in a row were not finite.
        """
        if math.isfinite(norm):
            self._in_a_row = 0
            return False
        self.count += 1
        self._in_a_row += 1
        if self._in_a_row >= self._most:
            raise LearnerError(
                f"update {n_updates}: the gradient was NaN or infinite {self._in_a_row} times in a row. "
                "Lower --learning-rate, set --max-grad-norm, or look for NaN in observations and rewards."
            )
        return True

    def notes(self) -> list[str]:
        """Warnings for the user: one after the first skipped update, then when the count reaches a power of two."""
        if self.count < self._next_note:
            return []
        self._next_note = _next_power_of_two(self.count)
        return [
            f"skipped updates so far: {self.count:,} (the gradient was NaN or infinite; {self._most} in a row end "
            "the run). Lower --learning-rate, set --max-grad-norm, or look for NaN in observations and rewards."
        ]

    def state(self) -> NDArray[np.int64]:
        """The counts, for a checkpoint."""
        return np.array([self.count, self._in_a_row])

    def load(self, state: NDArray[np.int64]) -> None:
        """Continue from `state()`."""
        self.count, self._in_a_row = (int(n) for n in state)
        self._next_note = _next_power_of_two(self.count)


def _next_power_of_two(count: int) -> int:
    """The smallest power of two above `count`."""
    return 1 << count.bit_length()

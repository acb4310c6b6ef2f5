"""Gradients that are not finite: left out, but not for ever."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from paceline.errors import LearnerError

MAX_BAD_UPDATES = 10
"""Non-finite gradients in a row after which training stops."""


class BadUpdates:
    """Counts them."""

    def __init__(self) -> None:
        self.count = 0
        self._in_a_row = 0

    def is_bad(self, norm: float, n_updates: int) -> bool:
        """Whether an update has to be left out.

        Args:
            norm: Length of its gradient.
            n_updates: How many there were before.

        Raises:
            LearnerError: There were too many in a row.
        """
        if math.isfinite(norm):
            self._in_a_row = 0
            return False
        self.count += 1
        self._in_a_row += 1
        if self._in_a_row >= MAX_BAD_UPDATES:
            raise LearnerError(
                f"update {n_updates}: the gradient was not finite {self._in_a_row} times in a row. "
                "Lower --learning-rate, set --max-grad-norm, or look for NaN in observations and rewards."
            )
        return True

    def state(self) -> NDArray[np.int64]:
        """For a checkpoint."""
        return np.array([self.count, self._in_a_row])

    def load(self, state: NDArray[np.int64]) -> None:
        """Go on counting from there."""
        self.count, self._in_a_row = (int(n) for n in state)

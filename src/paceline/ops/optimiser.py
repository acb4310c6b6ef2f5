"""What turns a flat gradient into a step: `adam` or `rmsprop`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor


class Optimiser(Protocol):
    """Changes the parameters, and remembers what it needs for that."""

    def step(self, grad: Tensor, lr: float) -> None:
        """Take one step along a gradient `[P]`."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What it remembers."""

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Remember that."""

"""Interface of the optimisers on a flat parameter vector: `adam` and `rmsprop`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor


class Optimiser(Protocol):
    """Updates a parameter vector in place and holds the optimiser state."""

    def step(self, grad: Tensor, lr: float) -> None:
        """Take one optimiser step with a gradient `[P]`."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the optimiser state, for checkpoints."""

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""

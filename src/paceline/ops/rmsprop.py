"""RMSProp (Tieleman and Hinton, 2012) on one flat vector, as in A3C: all workers share the mean square."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


class FlatRMSProp:
    """RMSProp that updates `vector` in place.

    Args:
        vector: `[P]` float32, the parameters.
        eps: Added to the mean square, before the square root.
        decay: Decay rate of the mean square of gradients.
        square: `[P]` storage of the mean square (shared memory, for instance); None allocates it here.
    """

    def __init__(self, vector: Tensor, *, eps: float = 1e-5, decay: float = 0.99, square: Tensor | None = None) -> None:
        self._vector, self._eps, self._decay = vector, eps, decay
        self._square = torch.zeros_like(vector) if square is None else square

    def step(self, grad: Tensor, lr: float) -> None:
        """Take one optimiser step with the gradient `grad` `[P]`."""
        self._square.mul_(self._decay).addcmul_(grad, grad, value=1.0 - self._decay)
        self._vector.addcdiv_(grad, (self._square + self._eps).sqrt_(), value=-lr)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the mean square, as an array."""
        return {"square": self._square.cpu().numpy()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self._square.copy_(torch.from_numpy(state["square"]))

"""RMSProp (Tieleman and Hinton, 2012) on one flat vector, as A3C used it: the mean square is shared by all workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


class FlatRMSProp:
    """Updates `vector` in place.

    Args:
        vector: `[P]` float32, the parameters.
        eps: Added to the mean square.
        decay: Of the mean square of gradients.
        square: `[P]` where that is kept; None for memory of its own.
    """

    def __init__(self, vector: Tensor, *, eps: float = 1e-5, decay: float = 0.99, square: Tensor | None = None) -> None:
        self._vector, self._eps, self._decay = vector, eps, decay
        self._square = torch.zeros_like(vector) if square is None else square

    def step(self, grad: Tensor, lr: float) -> None:
        """Take one step along `grad` `[P]`."""
        self._square.mul_(self._decay).addcmul_(grad, grad, value=1.0 - self._decay)
        self._vector.addcdiv_(grad, (self._square + self._eps).sqrt_(), value=-lr)

    def state(self) -> dict[str, NDArray[Any]]:
        """The mean square, as an array."""
        return {"square": self._square.cpu().numpy()}

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of `state`."""
        self._square.copy_(torch.from_numpy(state["square"]))

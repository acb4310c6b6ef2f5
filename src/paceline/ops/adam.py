"""Adam (Kingma and Ba, 2015) on one flat vector: one fused kernel per step, whatever the network.

`torch.optim` does the same arithmetic, but its first use loads the compiler stack (about one second of
start-up), and it keeps a dict of state per parameter where two vectors are enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class FlatAdam:
    """Adam that updates `vector` in place.

    Args:
        vector: `[P]` float32, the parameters.
        eps: Added to the denominator.
        moments: `[2, P]` storage of the two moments (shared memory, for instance); None allocates it here.
        steps: `[]` storage of the step count; None allocates it here.
    """

    def __init__(
        self,
        vector: Tensor,
        *,
        eps: float = 1e-5,
        moments: Tensor | None = None,
        steps: Tensor | None = None,
    ) -> None:
        self._vector, self._eps = vector, eps
        self._mean, self._square = torch.zeros(2, *vector.shape, device=vector.device) if moments is None else moments
        self._steps = torch.zeros((), device=vector.device) if steps is None else steps
        # On the CPU numpy increments the count: after non-torch work torch takes longer for that than for the step.
        self._count: Tensor | NDArray[Any] = self._steps.numpy() if vector.device.type == "cpu" else self._steps

    def step(self, grad: Tensor, lr: float) -> None:
        """Take one optimiser step with the gradient `grad` `[P]`."""
        self._count += 1
        torch._fused_adam_(
            [self._vector],
            [grad],
            [self._mean],
            [self._square],
            [],
            [self._steps],
            lr=lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return both moments and the step count, as arrays."""
        return {
            "mean": self._mean.cpu().numpy(),
            "square": self._square.cpu().numpy(),
            "steps": np.array(int(self._steps)),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned."""
        self._mean.copy_(torch.from_numpy(state["mean"]))
        self._square.copy_(torch.from_numpy(state["square"]))
        self._steps.fill_(int(state["steps"]))

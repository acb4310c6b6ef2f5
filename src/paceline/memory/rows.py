"""One time row of a rollout, as a worker sees it: numpy views of its own columns in shared memory.

Rows are made once, before the first step, so that the step loop indexes nothing and allocates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Row:
    """What n envs saw and did at one time step. Row T carries `obs`, `mask` and `value` only."""

    obs: dict[str, NDArray[Any]]  # [n, *leaf]
    mask: NDArray[np.bool_] | None  # [n, M]
    action: NDArray[Any]  # [n, *act]
    reward: NDArray[np.float32]  # [n]
    terminated: NDArray[np.bool_]  # [n]
    truncated: NDArray[np.bool_]  # [n]
    valid: NDArray[np.bool_]  # [n]
    log_prob: NDArray[np.float32]  # [n]
    value: NDArray[np.float32]  # [n]

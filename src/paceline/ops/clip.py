"""Keeping a flat gradient short."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def clip_norm(grad: Tensor, most: float) -> float:
    """Scale `grad` `[P]` in place to the length `most`, where it is longer; returns the length it had.

    Where that is not finite, the gradient is of no use.
    """
    return _in_numpy(grad, most) if grad.device.type == "cpu" else _in_torch(grad, most)


def _in_numpy(grad: Tensor, most: float) -> float:
    # Between two minibatches everybody waits for this, and torch's calls take three times as long.
    array = grad.numpy()
    norm = math.sqrt(float(np.dot(array, array)))
    if most < norm < math.inf:
        np.multiply(array, np.float32(most / (norm + 1e-6)), out=array)
    return norm


def _in_torch(grad: Tensor, most: float) -> float:
    norm = float(torch.linalg.vector_norm(grad))
    if most < norm < math.inf:
        grad.mul_(most / (norm + 1e-6))
    return norm

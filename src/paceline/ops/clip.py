"""Gradient norm clipping on a flat gradient vector."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def clip_norm(grad: Tensor, most: float) -> float:
    """Scale `grad` `[P]` in place so that its norm is at most `most`; returns the norm before clipping.

    A norm that is NaN or infinite leaves `grad` unchanged; the caller must discard it.
    """
    return _in_numpy(grad, most) if grad.device.type == "cpu" else _in_torch(grad, most)


def _in_numpy(grad: Tensor, most: float) -> float:
    # All workers wait for the learner between two minibatches, and torch's calls take three times as long.
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

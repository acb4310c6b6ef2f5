"""Gradients of whole minibatches on the learner's device (a GPU)."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.algos.ppo_gradient import PPOGradient
from paceline.memory.shards import Shards
from paceline.memory.slots import Slots


class DeviceGradients:
    """Computes the gradient of whole minibatches on the learner's device, from a copy of the batch there.

    Args:
        gradient: The gradient of the policy on the device.
        slots: The batch.
        shards: The prepared samples.
        device: The learner's device.
    """

    def __init__(self, gradient: PPOGradient, slots: Slots, shards: Shards, device: torch.device) -> None:
        self._gradient, self._shards, self._device = gradient, shards, device
        self._views = slots.samples()
        self.begin(math.inf)

    def begin(self, clip_range: float) -> None:
        """Copy the batch to the device, once for all epochs."""
        self._rows, self._clip_range = self._views.to(self._device), clip_range

    def __call__(self, start: int, stop: int, mean: float, inv_std: float) -> tuple[Tensor, NDArray[np.float32]]:
        """Run forward and backward on the device; the loss, a few numbers per row, is computed on the CPU."""
        index = self._shards.order[start:stop]
        there, rows, norm = index.to(self._device), self._rows, self._gradient.obs_norm
        obs = {name: leaf[there] for name, leaf in rows.obs.items()}
        terms = self._gradient(
            obs if norm is None else norm.apply_torch(obs),
            rows.action[there].cpu().numpy(),
            None if rows.mask is None else rows.mask[there].cpu().numpy(),
            self._shards.samples[index].numpy(),
            mean=mean,
            inv_std=inv_std,
            total=stop - start,
            clip_range=self._clip_range,
        )
        return self._gradient.vector, np.array(terms, np.float32)

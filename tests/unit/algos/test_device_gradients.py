"""Gradients of whole minibatches on the learner's device: here the CPU does what a GPU would."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from tests.unit.algos.learners import B, Make, T, batch, make, vector

__all__ = ["make"]  # a fixture


def test_a_device_computes_what_one_shard_computes(make: Make) -> None:
    workers, device = make(grad_shards=1, obs_norm=True), make(grad_shards=1, obs_norm=True, on_device=True)
    for version in range(3):
        b = batch(seed=version, version=version)
        assert workers.update(b, 0.0) == device.update(b, 0.0)
    assert vector(workers) == vector(device)


def test_begin_copies_the_batch_and_gradients_use_the_copy(make: Make) -> None:
    learner = make(grad_shards=1, on_device=True, batch_size=T * B, n_epochs=1)
    learner.update(batch(), 0.0)
    gradients: Any = learner._gradients
    views = gradients._views

    class OnAnotherDevice:
        """On the CPU `to` returns the views themselves; on a GPU it copies."""

        def to(self, device: torch.device) -> Any:
            return copy.deepcopy(views.to(device))

    gradients._views = OnAnotherDevice()
    gradients.begin(0.2)

    def gradient() -> torch.Tensor:
        vector, terms = gradients(0, T * B, 0.0, 1.0)
        assert np.isfinite(terms).all()
        found: torch.Tensor = vector.clone()
        return found

    before = gradient()
    learner.arena["obs/obs"][...] = 0.0  # the next rollout overwrites the batch
    learner.arena["action"][...] = 0
    torch.testing.assert_close(gradient(), before, rtol=0, atol=0)
    gradients.begin(0.2)
    assert not torch.equal(gradient(), before)

"""The `Optimiser` interface: every optimiser follows the gradient, in place, and continues exactly from its state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paceline.ops.adam import FlatAdam
from paceline.ops.optimiser import Optimiser
from paceline.ops.rmsprop import FlatRMSProp

Make = Callable[[Tensor], Optimiser]


@pytest.mark.parametrize("make", [FlatAdam, FlatRMSProp])
def test_steps_reduce_a_quadratic_in_place(make: Make) -> None:
    vector = torch.tensor([3.0, -2.0, 0.5])
    memory, optimiser = vector.data_ptr(), make(vector)
    for _ in range(400):
        optimiser.step(2 * vector, 0.02)
    assert vector.data_ptr() == memory
    assert vector.abs().max() < 0.1


@pytest.mark.parametrize("make", [FlatAdam, FlatRMSProp])
def test_a_loaded_state_continues_bit_for_bit(make: Make) -> None:
    grads = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    vector = torch.ones(5)
    optimiser = make(vector)
    for grad in grads[:3]:
        optimiser.step(grad, 0.1)
    copy = vector.clone()
    state = {name: array.copy() for name, array in optimiser.state().items()}
    fresh, loaded = make(copy.clone()), make(copy)
    loaded.load(state)
    for grad in grads[3:]:
        optimiser.step(grad, 0.1)
        loaded.step(grad, 0.1)
        fresh.step(grad, 0.1)
    assert torch.equal(copy, vector)
    assert not torch.equal(fresh._vector, vector), "the state matters"  # type: ignore[attr-defined]

"""`FlatAdam` equals `torch.optim.Adam`."""

from __future__ import annotations

import subprocess
import sys

import torch

from paceline.ops.adam import FlatAdam


def test_adam_equals_torch_adam() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(1000, generator=generator)
    ours, theirs = start.clone(), torch.nn.Parameter(start.clone())
    adam, reference = FlatAdam(ours), torch.optim.Adam([theirs], lr=1.0, eps=1e-5)
    for step in range(1, 20):
        grad = torch.randn(1000, generator=generator)
        lr = 0.1 / step
        adam.step(grad, lr)
        theirs.grad = grad.clone()
        reference.param_groups[0]["lr"] = lr
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_adam_state_round_trips_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(64, generator=generator) for _ in range(6)]
    whole = torch.zeros(64)
    adam = FlatAdam(whole)
    for grad in grads:
        adam.step(grad, 0.01)

    first = torch.zeros(64)
    before = FlatAdam(first)
    for grad in grads[:3]:
        before.step(grad, 0.01)
    saved = {key: value.copy() for key, value in before.state().items()}
    after = FlatAdam(first)
    after.load(saved)
    for grad in grads[3:]:
        after.step(grad, 0.01)
    assert torch.equal(first, whole)


def test_a_step_does_not_load_the_compiler_stack() -> None:
    code = (
        "import sys, torch; from paceline.ops.adam import FlatAdam; "
        "FlatAdam(torch.zeros(4)).step(torch.ones(4), .1); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

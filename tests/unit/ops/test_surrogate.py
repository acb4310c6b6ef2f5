"""The closed-form gradient of PPO's objective against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.ops.surrogate import TERMS, surrogate

CLIP = 0.2


def rows(n: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(scale: float = 1.0) -> Tensor:
        return scale * torch.randn(n, generator=generator, dtype=torch.float64)

    old = -draw().abs()
    return {
        "log_prob": old + draw(0.3),
        "entropy": draw().abs(),
        "value": draw(),
        "old_log_prob": old,
        "advantage": draw(),
        "returns": draw(),
        "old_value": draw(),
    }


def by_definition(r: dict[str, Tensor], clip_range_vf: float | None, ent_coef: float, vf_coef: float) -> Tensor:
    ratio = (r["log_prob"] - r["old_log_prob"]).exp()
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    policy = -torch.minimum(ratio * r["advantage"], clipped * r["advantage"]).mean()
    error = (r["value"] - r["returns"]) ** 2
    if clip_range_vf is not None:
        near = r["old_value"] + (r["value"] - r["old_value"]).clamp(-clip_range_vf, clip_range_vf)
        error = torch.maximum(error, (near - r["returns"]) ** 2)
    return policy - ent_coef * r["entropy"].mean() + vf_coef * error.mean()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 40),
    seed=st.integers(0, 10_000),
    clip_range_vf=st.sampled_from([None, 0.1, 1.0]),
    ent_coef=st.sampled_from([0.0, 0.01]),
)
def test_gradients_are_those_of_the_definition(n: int, seed: int, clip_range_vf: float | None, ent_coef: float) -> None:
    r = rows(n, seed)
    leaves = {name: r[name].clone().requires_grad_() for name in ("log_prob", "entropy", "value")}
    loss = by_definition({**r, **leaves}, clip_range_vf, ent_coef, 0.5)
    expected = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in r.items()}
    got = surrogate(**arrays, total=n, clip_range=CLIP, clip_range_vf=clip_range_vf, ent_coef=ent_coef, vf_coef=0.5)
    mine = (got.d_log_prob, np.full(n, got.d_entropy), got.d_value)
    for gradient, theirs in zip(mine, expected, strict=True):
        np.testing.assert_allclose(gradient, np.zeros(n) if theirs is None else theirs.numpy(), rtol=1e-9, atol=1e-12)
    terms = dict(zip(TERMS, got.terms, strict=True))
    total = terms["policy_gradient_loss"] + ent_coef * terms["entropy_loss"] + 0.5 * terms["value_loss"]
    assert total == pytest.approx(float(loss.detach()), rel=1e-9, abs=1e-12)


def arrays(n: int, seed: int) -> dict[str, Any]:
    return {name: tensor.numpy().astype(np.float32) for name, tensor in rows(n, seed).items()}


def test_shards_add_up() -> None:
    r = arrays(20, 0)
    fixed: dict[str, Any] = {"total": 20, "clip_range": CLIP, "clip_range_vf": None, "ent_coef": 0.01, "vf_coef": 0.5}
    whole = surrogate(**r, **fixed)
    parts = [
        surrogate(**{name: array[cut] for name, array in r.items()}, **fixed) for cut in (slice(0, 7), slice(7, 20))
    ]
    np.testing.assert_allclose(np.add(parts[0].terms, parts[1].terms), whole.terms, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(np.concatenate([part.d_log_prob for part in parts]), whole.d_log_prob)
    assert whole.d_log_prob.dtype == whole.d_value.dtype == np.float32


def test_an_unchanged_policy_has_no_divergence_and_nothing_clipped() -> None:
    r = arrays(9, 1)
    r["log_prob"] = r["old_log_prob"]
    got = surrogate(**r, total=9, clip_range=CLIP, clip_range_vf=None, ent_coef=0.0, vf_coef=0.5)
    terms = dict(zip(TERMS, got.terms, strict=True))
    assert terms["approx_kl"] == terms["clip_fraction"] == 0.0
    assert terms["policy_gradient_loss"] == pytest.approx(-float(r["advantage"].mean()))


def test_gradient_is_zero_beyond_the_clip_range() -> None:
    one = np.ones(4, np.float32)
    got = surrogate(
        np.array([0.5, -0.5, 0.5, -0.5], np.float32),
        one,
        one,
        old_log_prob=np.zeros(4, np.float32),
        advantage=np.array([1.0, 1.0, -1.0, -1.0], np.float32),
        returns=one,
        old_value=one,
        total=4,
        clip_range=CLIP,
        clip_range_vf=None,
        ent_coef=0.0,
        vf_coef=0.5,
    )
    assert (got.d_log_prob != 0).tolist() == [False, True, True, False]
    assert dict(zip(TERMS, got.terms, strict=True))["clip_fraction"] == 1.0

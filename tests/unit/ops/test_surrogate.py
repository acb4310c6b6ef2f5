"""The closed form of PPO's objective against autograd on its definition."""

from __future__ import annotations

from typing import Any

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
    got = surrogate(**r, total=n, clip_range=CLIP, clip_range_vf=clip_range_vf, ent_coef=ent_coef, vf_coef=0.5)
    for mine, theirs in zip((got.d_log_prob, got.d_entropy, got.d_value), expected, strict=True):
        torch.testing.assert_close(mine, torch.zeros_like(mine) if theirs is None else theirs)
    terms = dict(zip(TERMS, got.terms.tolist(), strict=True))
    total = terms["policy_gradient_loss"] + ent_coef * terms["entropy_loss"] + 0.5 * terms["value_loss"]
    assert total == pytest.approx(float(loss.detach()), rel=1e-9, abs=1e-12)


def test_shards_add_up() -> None:
    r = rows(20, 0)
    fixed: dict[str, Any] = {"total": 20, "clip_range": CLIP, "clip_range_vf": None, "ent_coef": 0.01, "vf_coef": 0.5}
    whole = surrogate(**{**r, **fixed})
    cuts = (slice(0, 7), slice(7, 20))
    parts = [surrogate(**{**{name: t[cut] for name, t in r.items()}, **fixed}) for cut in cuts]
    torch.testing.assert_close(parts[0].terms + parts[1].terms, whole.terms)
    torch.testing.assert_close(torch.cat([part.d_log_prob for part in parts]), whole.d_log_prob)


def test_an_unchanged_policy_has_no_divergence_and_nothing_clipped() -> None:
    r = rows(9, 1)
    r["log_prob"] = r["old_log_prob"]
    got = surrogate(**r, total=9, clip_range=CLIP, clip_range_vf=None, ent_coef=0.0, vf_coef=0.5)
    terms = dict(zip(TERMS, got.terms.tolist(), strict=True))
    assert terms["approx_kl"] == terms["clip_fraction"] == 0.0
    assert terms["policy_gradient_loss"] == pytest.approx(-float(r["advantage"].mean()))


def test_a_ratio_beyond_the_range_is_pushed_no_further() -> None:
    one = torch.ones(4, dtype=torch.float64)
    got = surrogate(
        torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64),
        one,
        one,
        old_log_prob=torch.zeros(4, dtype=torch.float64),
        advantage=torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64),
        returns=one,
        old_value=one,
        total=4,
        clip_range=CLIP,
        clip_range_vf=None,
        ent_coef=0.0,
        vf_coef=0.5,
    )
    assert (got.d_log_prob != 0).tolist() == [False, True, True, False]
    assert dict(zip(TERMS, got.terms.tolist(), strict=True))["clip_fraction"] == 1.0

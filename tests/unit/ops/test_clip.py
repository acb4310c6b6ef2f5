"""Gradients are cut to their length and keep their direction."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from paceline.ops import clip

CLIPS = [clip.clip_norm, clip._in_numpy, clip._in_torch]  # the last is what other devices do


@pytest.mark.parametrize("clip_norm", CLIPS)
@pytest.mark.parametrize(("most", "factor"), [(5.0, 0.5), (20.0, 1.0)])
def test_a_gradient_of_length_ten(clip_norm: Callable[[Tensor, float], float], most: float, factor: float) -> None:
    grad = torch.tensor([6.0, 0.0, -8.0])
    assert clip_norm(grad, most) == pytest.approx(10.0)
    torch.testing.assert_close(grad, torch.tensor([6.0, 0.0, -8.0]) * factor)


@pytest.mark.parametrize("clip_norm", CLIPS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_seen(clip_norm: Callable[[Tensor, float], float], bad: float) -> None:
    assert not math.isfinite(clip_norm(torch.tensor([1.0, bad, 1.0]), 0.5))

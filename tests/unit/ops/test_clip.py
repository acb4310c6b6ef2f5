"""Gradient norm clipping keeps the direction of the gradient."""

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
def test_clipping_keeps_the_direction(clip_norm: Callable[[Tensor, float], float], most: float, factor: float) -> None:
    grad = torch.tensor([6.0, 0.0, -8.0])
    assert clip_norm(grad, most) == pytest.approx(10.0)
    torch.testing.assert_close(grad, torch.tensor([6.0, 0.0, -8.0]) * factor)


@pytest.mark.parametrize("clip_norm", CLIPS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_norms_that_are_not_finite_are_returned_unclipped(
    clip_norm: Callable[[Tensor, float], float], bad: float
) -> None:
    assert not math.isfinite(clip_norm(torch.tensor([1.0, bad, 1.0]), 0.5))

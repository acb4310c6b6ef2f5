"""Records of rollouts are read-only and do not share their defaults."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from paceline import batch
from paceline.batch import Finals, Outcome, Trajectory


def trajectory() -> Trajectory:
    step, rows, some = torch.zeros(2, 3), torch.zeros(3, 3), torch.zeros(1)
    finals = Finals(some, some, {"obs": some}, some)
    return Trajectory({"obs": rows}, None, step, step, step, step, step, step, rows, finals, 5)


def test_records_cannot_be_changed() -> None:
    kinds: list[Any] = [kind for kind in vars(batch).values() if dataclasses.is_dataclass(kind)]
    assert len(kinds) == 4
    assert all(kind.__dataclass_params__.frozen for kind in kinds)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory().version = 6  # type: ignore[misc]


def test_defaults_are_not_shared() -> None:
    one, other = trajectory(), trajectory()
    assert one.extras == {}
    assert one.extras is not other.extras
    arrays: list[Any] = [np.zeros((2, 3))] * 5
    assert Outcome(*arrays).reward_parts is not Outcome(*arrays).reward_parts

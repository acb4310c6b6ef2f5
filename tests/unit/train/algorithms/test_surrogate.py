"""The gradient that PPO and its relatives share: its memory, its network, and where it is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from paceline.algos.device_gradients import DeviceGradients
from paceline.algos.ppo_gradient import ShardedUpdate
from paceline.config.train_config import TrainConfig
from paceline.memory.slots import Slots
from paceline.nets.flat import size_of
from paceline.train.algorithms import surrogate
from paceline.train.algorithms.surrogate import gradients_for, surrogate_gradient
from paceline.train.build import build
from paceline.train.training import Training


@pytest.fixture
def training() -> Iterator[Training]:
    small: dict[str, Any] = {"env": "CartPole-v1", "n_envs": 4, "n_steps": 4, "num_workers": 0}
    with closing(build(TrainConfig.from_flat(**small))) as it:
        yield it


def test_a_new_network_reads_the_given_weights(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = training.plan.base
    weights = np.zeros(size_of(recipe.policy.build(recipe.shape.spec)), np.float32)
    settings: Any = training.config.training
    monkeypatch.setattr(surrogate, "PPOGradient", lambda policy, *_: policy)
    policy: Any = surrogate_gradient(recipe, settings, {"weights": weights}.__getitem__)
    weights[:] = 0.5
    (first, *_) = policy.parameters()
    assert (first == 0.5).all(), "parameters are views of the array"


@pytest.mark.parametrize(("device", "kind"), [("cpu", ShardedUpdate), ("meta", DeviceGradients)])
def test_gradients_are_sharded_on_the_cpu_only(training: Training, device: str, kind: type) -> None:
    policy = training.plan.base.policy.build(training.spec)
    parts: Any = SimpleNamespace(
        arena=training.arena, vector=torch.empty(size_of(policy), device=device), weights=training.weights,
        policy=policy, obs_norm=None,
    )  # fmt: skip
    slots, settings = Slots(training.arena, training.plan.base.shape), training.config.training
    found = gradients_for(parts, training.plan.base, settings, slots, lambda _: None)  # type: ignore[arg-type]
    assert isinstance(found, kind)

"""Specs, observations and policies for tests of the MLP."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from paceline.nets.mlp import Activation, MLPPolicy
from paceline.spec import EnvSpec

ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
DISCRETE = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Discrete(3))
BOX = EnvSpec.of(spaces.Box(-1, 1, (4,)), spaces.Box(-1, 1, (2,)))
MIXED = EnvSpec.of(
    spaces.Dict(
        {
            "bits": spaces.MultiBinary((2, 2)),
            "choice": spaces.Discrete(3, start=-1),
            "choices": spaces.MultiDiscrete([2, 3]),
            "wide": spaces.Box(-1, 1, (2, 2)),
            "bytes": spaces.Box(0, 9, (2,), np.uint8),
        }
    ),
    spaces.Discrete(2),
)


def observations(spec: EnvSpec, rows: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    spec.observation_space.seed(seed)
    raw = [spec.split(spec.observation_space.sample()) for _ in range(rows)]
    return {leaf.name: np.stack([r[leaf.name] for r in raw]).astype(leaf.dtype) for leaf in spec.obs}


def tensors(obs: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(leaf) for name, leaf in obs.items()}


def randomised(policy: MLPPolicy) -> MLPPolicy:
    """Biases and heads start at or near zero, which would hide mistakes."""
    torch.manual_seed(1)
    for parameter in policy.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return policy

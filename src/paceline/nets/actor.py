"""The forward pass used while collecting: numpy leaves in, numpy parameters and values out.

Whatever the policy, each group is computed by itself, because the last bits of a matrix
product depend on how many rows it has: results must not depend on which groups share a worker.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from paceline.nets.features import Leaves, policy_input
from paceline.nets.normalise import ObsNormaliser
from paceline.spec import EnvSpec

Actor = Callable[[Leaves], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""Leaves `[n, *leaf]` -> params `[n, P]`, value `[n]`; both are overwritten by the next call."""


def actor_for(
    policy: nn.Module, spec: EnvSpec, groups: int, group_size: int, normaliser: ObsNormaliser | None = None
) -> Actor:
    """An actor for `groups * group_size` rows.

    It follows later in-place updates of the policy's weights and of the normaliser's arrays.

    Args:
        policy: On the CPU, its parameters already where they will stay.
        spec: Names and shapes of the leaves.
        groups: Groups this worker owns.
        group_size: Envs in each.
        normaliser: Applied to the leaves first.
    """
    numpy_actor = getattr(policy, "numpy_actor", None)
    forward: Actor = (
        _torch_actor(policy, spec, groups, group_size) if numpy_actor is None else numpy_actor(groups, group_size)
    )
    if normaliser is None:
        return forward
    scale = normaliser.applier(groups * group_size)
    return lambda obs: forward(scale(obs))


def _torch_actor(policy: nn.Module, spec: EnvSpec, groups: int, group_size: int) -> Actor:
    params = np.empty((groups * group_size, spec.action.param_size), np.float32)
    value = np.empty(groups * group_size, np.float32)
    params_out, value_out = torch.from_numpy(params), torch.from_numpy(value)
    slices = [slice(i * group_size, (i + 1) * group_size) for i in range(groups)]

    def actor(obs: Leaves) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with torch.inference_mode():
            leaves = {leaf.name: torch.from_numpy(obs[leaf.name]) for leaf in spec.obs}
            for rows in slices:
                group = {name: leaf[rows] for name, leaf in leaves.items()}
                params_out[rows], value_out[rows] = policy(policy_input(spec, group))
        return params, value

    return actor

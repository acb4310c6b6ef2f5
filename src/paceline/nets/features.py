"""Observation leaves as one float row each: vectors flattened, categories one-hot, bits as floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from paceline.spec import EnvSpec, Leaf

Leaves = Mapping[str, NDArray[Any]]


def policy_input(spec: EnvSpec, leaves: Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
    """What a policy's forward is handed: the dict of leaves, or the only leaf of a plain space."""
    return dict(leaves) if spec.dict_obs else leaves[spec.obs[0].name]


def leaves_of(obs: Tensor | Mapping[str, Tensor], leaves: Sequence[Leaf]) -> Mapping[str, Tensor]:
    """The inverse of `policy_input`."""
    return {leaves[0].name: obs} if isinstance(obs, Tensor) else obs


def encode(obs: Mapping[str, Tensor], leaves: Sequence[Leaf]) -> Tensor:
    """Concatenate all leaves into float rows `[N, features]`; the dtype is torch's default for integers."""
    columns = [_encode_leaf(obs[leaf.name], leaf) for leaf in leaves]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def _encode_leaf(value: Tensor, leaf: Leaf) -> Tensor:
    if not leaf.nvec:
        rows = value.reshape(len(value), -1)
        return rows if rows.is_floating_point() else rows.float()
    digits = (value.long() - leaf.start).reshape(len(value), -1)
    hot = [functional.one_hot(digits[:, i], n) for i, n in enumerate(leaf.nvec)]
    return torch.cat(hot, 1).float()


def numpy_encoder(leaves: Sequence[Leaf], rows: int) -> Callable[[Leaves], NDArray[np.float32]]:
    """`encode` for acting: a function from leaves of `rows` rows to float32 `[rows, features]`.

    A single float32 vector is passed through as a view; anything else is written into one
    buffer, which the next call overwrites.
    """
    first = leaves[0]
    if len(leaves) == 1 and first.dtype == np.float32 and not first.nvec:
        name, width = first.name, first.features
        return lambda obs: obs[name].reshape(rows, width)

    buffer = np.zeros((rows, sum(leaf.features for leaf in leaves)), np.float32)
    index = np.arange(rows)[:, None]
    plan: list[tuple[Leaf, NDArray[np.float32], NDArray[np.int64]]] = []
    column = 0
    for leaf in leaves:
        part = buffer[:, column : column + leaf.features]
        # Where digit 0 of each category lies in the part, so that one index write sets all ones.
        zeros = np.concatenate(([0], np.cumsum(leaf.nvec)[:-1])).astype(np.int64) - leaf.start
        plan.append((leaf, part, zeros))
        column += leaf.features

    def encoder(obs: Leaves) -> NDArray[np.float32]:
        for leaf, part, zeros in plan:
            value = obs[leaf.name].reshape(rows, -1)
            if leaf.nvec:
                part[...] = 0.0
                part[index, value + zeros] = 1.0
            else:
                part[...] = value
        return buffer

    return encoder

"""Encodes observation leaves as rows of floats, as networks need them: vectors flattened, categories one-hot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from paceline.errors import EnvError
from paceline.spec import EnvSpec, Leaf

Leaves = Mapping[str, NDArray[Any]]


def policy_input(spec: EnvSpec, leaves: Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
    """Return the argument of a policy's forward: the dict of leaves, or the single leaf if the space is not a Dict."""
    return dict(leaves) if spec.dict_obs else leaves[spec.obs[0].name]


def leaves_of(obs: Tensor | Mapping[str, Tensor], leaves: Sequence[Leaf]) -> Mapping[str, Tensor]:
    """Return the leaves by name, given the argument of a policy's forward: the inverse of `policy_input`."""
    return {leaves[0].name: obs} if isinstance(obs, Tensor) else obs


def encode(obs: Mapping[str, Tensor], leaves: Sequence[Leaf]) -> Tensor:
    """Concatenate all leaves into float rows `[N, features]`; integer leaves become torch's default float dtype."""
    columns = [_encode_leaf(obs[leaf.name], leaf) for leaf in leaves]
    return columns[0] if len(columns) == 1 else torch.cat(columns, 1)


def _encode_leaf(value: Tensor, leaf: Leaf) -> Tensor:
    if not leaf.nvec:
        rows = value.reshape(len(value), -1)
        return rows if rows.is_floating_point() else rows.float()
    digits = (value.long() - leaf.start).reshape(len(value), -1)
    hot = [functional.one_hot(digits[:, i], n) for i, n in enumerate(leaf.nvec)]
    return torch.cat(hot, 1).float()


class NumpyEncoder:
    """`encode` in numpy: leaves of N rows -> float32 `[N, features]`.

    A single float32 vector leaf is returned as a view; anything else is written to one buffer, which the next call
    overwrites.

    Args:
        leaves: The leaves, in the order of their columns.
        checks: Raise an error for categories outside a leaf's space. Collecting skips this check, because learning
            checks the same observations.
    """

    def __init__(self, leaves: Sequence[Leaf], *, checks: bool = False) -> None:
        first = leaves[0]
        self._only = first if len(leaves) == 1 and first.dtype == np.float32 and not first.nvec else None
        self._leaves, self._first, self._checks = leaves, first.name, checks
        # The column of value 0 of each category among a leaf's columns, so that one indexed write sets all ones.
        self._zeros = [np.cumsum([0, *leaf.nvec])[:-1].astype(np.int64) - leaf.start for leaf in leaves]
        self._ends = np.cumsum([leaf.features for leaf in leaves]).tolist()
        self._memory = np.zeros((0, self._ends[-1]), np.float32)
        self._view(0)

    def __call__(self, obs: Leaves) -> NDArray[np.float32]:
        """Encode the rows.

        Raises:
            EnvError: A category is outside its space (only with `checks`).
        """
        rows = len(obs[self._first])
        if self._only is not None:
            return obs[self._first].reshape(rows, self._only.features)
        if rows != len(self._buffer):
            self._view(rows)
        for leaf, part, zeros in zip(self._leaves, self._parts, self._zeros, strict=True):
            value = obs[leaf.name].reshape(rows, -1)
            if not leaf.nvec:
                part[...] = value
                continue
            if self._checks:
                _check_categories(leaf, value)
            part[...] = 0.0
            part[self._index, value + zeros] = 1.0
        return self._buffer

    def _view(self, rows: int) -> None:
        """Use the first `rows` rows of the buffer; enlarges it if necessary."""
        if rows > len(self._memory):
            self._memory = np.zeros((rows, self._ends[-1]), np.float32)
        self._buffer = self._memory[:rows]
        pairs = zip(self._leaves, self._ends, strict=True)
        self._parts = [self._buffer[:, end - leaf.features : end] for leaf, end in pairs]
        self._index = np.arange(rows)[:, None]


def _check_categories(leaf: Leaf, value: NDArray[Any]) -> None:
    """Raise EnvError for a category outside its space: the indexed write would set the column of another category."""
    wrong = (value < leaf.start) | (value >= leaf.start + np.array(leaf.nvec))
    if wrong.any():
        raise EnvError(
            f"observation {leaf.name!r}: categories must start at {leaf.start}, with counts {list(leaf.nvec)} "
            f"(got {value[wrong][0]}). Fix the env's observations, or its observation_space."
        )

"""The MLP as acting sees it: numpy on its parameter memory, group by group.

    act      obs [n, *leaf]    -> params [n, P]     the policy's tower alone, for every row of a rollout
    values   obs [R, n, *leaf] -> value [R, n]      the value's tower, for many rows at once
    (call)   obs [n, *leaf]    -> params, value     both

Values are needed only when the rollout is complete, and a call costs nearly as much for one row of envs as for many.
Products are batched by group and each group is computed separately, so its bits depend neither on the number of groups
nor on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.nets.features import Leaves, NumpyEncoder
from paceline.spec import Leaf

Floats = NDArray[np.float32]


Layer: TypeAlias = tuple[Floats, Floats, Floats, Floats]
"""Weights, biases, where the products of all rows go, and those of them that count, in the shape of the biases."""


def _forward(rows: Floats, hidden: Sequence[Layer], output: Layer, activate: Callable[[Floats], object]) -> Floats:
    """The outputs that count."""
    # Between env steps each numpy call costs twice as much as in a tight loop: make few and plain calls.
    for weight, bias, products, counted in hidden:
        np.matmul(rows, weight, products)
        np.add(counted, bias, counted)
        activate(counted)
        rows = products
    weight, bias, products, counted = output
    np.matmul(rows, weight, products)
    return np.add(counted, bias, counted)


class Tower:
    """Hidden layers and an output, on rows `[..., groups, G, in]`. What it returns is overwritten by the next call.

    Args:
        layers: Weights `[in, out]` and biases `[out]`; the last are those of the output.
        activate: The non-linearity between them, in place.
        shape: Of the rows, without their last axis; where it has three, fewer along the first will do.
    """

    def __init__(
        self, layers: Sequence[tuple[Floats, Floats]], activate: Callable[[Floats], object], shape: tuple[int, ...]
    ) -> None:
        self._layers, self._activate = layers, activate
        *lead, groups, size = shape
        self._rooms = [np.empty((*lead, groups, size, weight.shape[1]), np.float32) for weight, _ in layers]
        # A bias for every row: to add one bias to many rows is a loop over rows, and costs more than the sum itself.
        self._biases = [np.empty((groups * size, weight.shape[1]), np.float32) for weight, _ in layers]
        self.begin()
        self._view(shape[0])

    def begin(self) -> None:
        """Take over the biases. Weights are read where they are, in every call."""
        for (_, bias), wide in zip(self._layers, self._biases, strict=True):
            wide[...] = bias

    def __call__(self, rows: Floats) -> Floats:
        """The outputs of all rows, `[N, out]`."""
        if len(rows) != self._length:
            self._view(len(rows))
        _forward(rows, self._hidden, self._output, self._activate)
        return self._outputs

    def _view(self, length: int) -> None:
        """Work on so many along the first axis: products see groups, what is done to each number sees long rows."""
        self._length = length
        stacks = [room[:length] for room in self._rooms]
        self._outputs = stacks[-1].reshape(-1, stacks[-1].shape[-1])
        *self._hidden, self._output = [
            (weight, wide.reshape(-1), stack, stack.reshape(*stack.shape[:-3], -1))
            for (weight, _), wide, stack in zip(self._layers, self._biases, stacks, strict=True)
        ]


class MLPActor:
    """Acts on `groups * group_size` rows. What it returns is overwritten by the next call.

    It reads parameter memory in place, so it follows every in-place update; build it after parameters were moved
    (nets/flat.py).

    Args:
        leaves: What it sees.
        policy: Weights `[in, out]` and biases of the policy's tower, layer by layer.
        value: The same of the value's, which has one output.
        log_std: Of numbers as actions: their deviations, the same for all rows.
        activate: The non-linearity, in place.
        groups: How many.
        group_size: Rows of each.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        policy: Sequence[tuple[Floats, Floats]],
        value: Sequence[tuple[Floats, Floats]],
        log_std: Floats | None,
        activate: Callable[[Floats], object],
        groups: int,
        group_size: int,
    ) -> None:
        shape, outputs = (groups, group_size), policy[-1][0].shape[1]
        self._shape, self._leaves, self._log_std = shape, leaves, log_std
        self._seen = *shape, sum(leaf.features for leaf in leaves)
        self._encode = NumpyEncoder(leaves)
        self._policy, self._policy_layers = Tower(policy, activate, shape), policy
        self._params = np.empty((groups * group_size, 2 * outputs), np.float32)  # where there are deviations
        self._value_layers, self._activate = value, activate
        self._reserve(1)

    def __call__(self, obs: Leaves) -> tuple[Floats, Floats]:
        """Distribution parameters `[n, P]` and values `[n]`."""
        self.begin()
        seen = self._encode(obs)
        return self._decided(seen), self._rated(seen, 1)[0]

    def begin(self) -> None:
        """Weights stand from now on: until it is called again, `act` and `values` need not look for new ones."""
        self._policy.begin()
        self._value.begin()

    def act(self, obs: Leaves) -> Floats:
        """Distribution parameters `[n, P]` alone, after `begin`."""
        return self._decided(self._encode(obs))

    def values(self, obs: Leaves, value: Floats) -> None:
        """Write the values `[R, n]` of leaves `[R, n, *leaf]`, after `begin`."""
        flat = {leaf.name: obs[leaf.name].reshape(value.size, *leaf.shape) for leaf in self._leaves}
        value[...] = self._rated(self._encode(flat), len(value))

    def row_actor(self, at: int) -> Callable[[Leaves], Floats]:
        """Leaves `[1, *leaf]` -> params `[1, P]`, for row `at` of a group by itself and to the same bits.

        Products are those of a whole group, of whose rows one counts: their last bits depend on how many rows there
        are, and not on what the others hold. A seat has memory of its own: seats may act at the same time.
        """
        group, log_std, activate = np.zeros(self._seen[1:], np.float32), self._log_std, self._activate
        encode, own = NumpyEncoder(self._leaves), group[at : at + 1]
        rooms = [np.empty((len(group), weight.shape[1]), np.float32) for weight, _ in self._policy_layers]
        pairs = zip(self._policy_layers, rooms, strict=True)
        *hidden, output = [(weight, bias, room, room[at]) for (weight, bias), room in pairs]

        def act(obs: Leaves) -> Floats:
            own[...] = encode(obs)
            params = _forward(group, hidden, output, activate)
            return (params if log_std is None else np.concatenate([params, log_std])).reshape(1, -1)

        return act

    def _decided(self, seen: Floats) -> Floats:
        """Distribution parameters of `[n, features]`."""
        params = self._policy(seen.reshape(self._seen))
        if self._log_std is None:
            return params
        outputs = params.shape[1]
        self._params[:, :outputs] = params
        self._params[:, outputs:] = self._log_std
        return self._params

    def _rated(self, seen: Floats, rows: int) -> Floats:
        """Values `[R, n]` of `[R * n, features]`."""
        if rows > self._reserved:
            self._reserve(rows)
        return self._value(seen.reshape(rows, *self._seen)).reshape(rows, -1)

    def _reserve(self, rows: int) -> None:
        """Room for the values of so many rows."""
        self._reserved, self._value = rows, Tower(self._value_layers, self._activate, (rows, *self._shape))

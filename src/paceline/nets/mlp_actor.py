"""The forward pass of the MLP for collecting: numpy on the policy's parameter memory, one group at a time.

    act      obs [n, *leaf]    -> params [n, P]     the policy tower alone, for every row of a rollout
    values   obs [R, n, *leaf] -> value [R, n]      the value tower, for many rows at once
    (call)   obs [n, *leaf]    -> params, value     both

Values are needed only when the rollout is complete, and a call costs nearly as much for one row of envs as for many.
Each group has matrix products of its own, so the bits of its results depend neither on the number of groups nor on the
number of rows.
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
"""Weights, biases, buffer for the products of all rows, and the view of that buffer to which the biases are added."""


def _forward(rows: Floats, hidden: Sequence[Layer], output: Layer, activate: Callable[[Floats], object]) -> Floats:
    """Compute all layers; returns the view of the output buffer."""
    # Between env steps each numpy call costs twice as much as in a tight loop: make few and plain calls.
    for weight, bias, products, used in hidden:
        np.matmul(rows, weight, products)
        np.add(used, bias, used)
        activate(used)
        rows = products
    weight, bias, products, used = output
    np.matmul(rows, weight, products)
    return np.add(used, bias, used)


class Tower:
    """Hidden layers and an output layer on rows `[..., groups, G, in]`. The next call overwrites the result.

    Args:
        layers: Weights `[in, out]` and biases `[out]` of each layer, the output layer last.
        activate: The non-linearity after each hidden layer, in place.
        shape: Shape of the rows without the last axis. With three axes, a call may pass fewer rows along the first.
    """

    def __init__(
        self, layers: Sequence[tuple[Floats, Floats]], activate: Callable[[Floats], object], shape: tuple[int, ...]
    ) -> None:
        self._layers, self._activate = layers, activate
        *lead, groups, size = shape
        self._buffers = [np.empty((*lead, groups, size, weight.shape[1]), np.float32) for weight, _ in layers]
        # The bias is repeated for every row: broadcasting one bias is a loop over rows and costs more than the sum.
        self._biases = [np.empty((groups * size, weight.shape[1]), np.float32) for weight, _ in layers]
        self.begin()
        self._view(shape[0])

    def begin(self) -> None:
        """Copy the current biases. Weights are not copied: every call reads them from parameter memory."""
        for (_, bias), wide in zip(self._layers, self._biases, strict=True):
            wide[...] = bias

    def __call__(self, rows: Floats) -> Floats:
        """Return the outputs of all rows, `[N, out]`."""
        if len(rows) != self._length:
            self._view(len(rows))
        _forward(rows, self._hidden, self._output, self._activate)
        return self._outputs

    def _view(self, length: int) -> None:
        """Use the first `length` entries of the buffers: by group for products, as long rows for elementwise calls."""
        self._length = length
        stacks = [buffer[:length] for buffer in self._buffers]
        self._outputs = stacks[-1].reshape(-1, stacks[-1].shape[-1])
        *self._hidden, self._output = [
            (weight, wide.reshape(-1), stack, stack.reshape(*stack.shape[:-3], -1))
            for (weight, _), wide, stack in zip(self._layers, self._biases, stacks, strict=True)
        ]


class MLPActor:
    """The `DeferredValueActor` of the MLP, for `groups * group_size` rows. The next call overwrites the result.

    It reads parameter memory in place, so it follows every in-place update. Build it after the parameters have been
    moved to their flat vector (nets/flat.py).

    Args:
        leaves: The leaves of an observation.
        policy: Weights `[in, out]` and biases of the policy tower, layer by layer.
        value: The same for the value tower, which has one output.
        log_std: Log standard deviations of Box actions, the same for all rows; None for other actions.
        activate: The non-linearity, in place.
        groups: Number of groups.
        group_size: Rows per group.
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
        self._input_shape = *shape, sum(leaf.features for leaf in leaves)
        self._encode = NumpyEncoder(leaves)
        self._policy, self._policy_layers = Tower(policy, activate, shape), policy
        self._params = np.empty((groups * group_size, 2 * outputs), np.float32)  # used only with `log_std`
        self._value_layers, self._activate = value, activate
        self._reserve(1)

    def __call__(self, obs: Leaves) -> tuple[Floats, Floats]:
        """Return distribution parameters `[n, P]` and values `[n]`."""
        self.begin()
        features = self._encode(obs)
        return self._policy_params(features), self._values(features, 1)[0]

    def begin(self) -> None:
        """Read the newest biases; `act` and `values` use these until the next call."""
        self._policy.begin()
        self._value.begin()

    def act(self, obs: Leaves) -> Floats:
        """Return distribution parameters `[n, P]` alone, after `begin`."""
        return self._policy_params(self._encode(obs))

    def values(self, obs: Leaves, value: Floats) -> None:
        """Write the values `[R, n]` of leaves `[R, n, *leaf]`, after `begin`."""
        flat = {leaf.name: obs[leaf.name].reshape(value.size, *leaf.shape) for leaf in self._leaves}
        value[...] = self._values(self._encode(flat), len(value))

    def row_actor(self, at: int) -> Callable[[Leaves], Floats]:
        """Return a function that computes row `at` of a group alone: leaves `[1, *leaf]` -> params `[1, P]`.

        Its bits are those of a pass over the whole group. It computes products of a whole group and uses one of their
        rows, because the last bits of a product depend on the number of rows, but not on the content of other rows.
        Each function has buffers of its own, so several may run at the same time.
        """
        group, log_std, activate = np.zeros(self._input_shape[1:], np.float32), self._log_std, self._activate
        encode, own = NumpyEncoder(self._leaves), group[at : at + 1]
        buffers = [np.empty((len(group), weight.shape[1]), np.float32) for weight, _ in self._policy_layers]
        pairs = zip(self._policy_layers, buffers, strict=True)
        *hidden, output = [(weight, bias, buffer, buffer[at]) for (weight, bias), buffer in pairs]

        def act(obs: Leaves) -> Floats:
            own[...] = encode(obs)
            params = _forward(group, hidden, output, activate)
            return (params if log_std is None else np.concatenate([params, log_std])).reshape(1, -1)

        return act

    def _policy_params(self, features: Floats) -> Floats:
        """Return distribution parameters `[n, P]` for `[n, features]`."""
        params = self._policy(features.reshape(self._input_shape))
        if self._log_std is None:
            return params
        outputs = params.shape[1]
        self._params[:, :outputs] = params
        self._params[:, outputs:] = self._log_std
        return self._params

    def _values(self, features: Floats, rows: int) -> Floats:
        """Return values `[R, n]` for `[R * n, features]`."""
        if rows > self._reserved:
            self._reserve(rows)
        return self._value(features.reshape(rows, *self._input_shape)).reshape(rows, -1)

    def _reserve(self, rows: int) -> None:
        """Allocate the value tower's buffers for up to `rows` rows."""
        self._reserved, self._value = rows, Tower(self._value_layers, self._activate, (rows, *self._shape))

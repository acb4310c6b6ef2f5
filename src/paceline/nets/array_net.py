"""Forward and backward pass of a network for learning: numpy arrays in and out, gradients in one flat vector.

    obs --net--> params [N, P], value [N]            loss: d_params, d_value
    gradient <-------- pullback(d_params, d_value)

An MLP's update is small: torch spends much of its time on call overhead and on allocating outputs. The same layers in
numpy, on the same parameter memory and with reused buffers, take a third of the time for 64 rows, two thirds for 512,
and the same for thousands (make bench-kernels).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.nets.features import NumpyEncoder, policy_input
from paceline.nets.flat import FlatGradient
from paceline.nets.mlp import ACTIVATIONS, Floats, MLPPolicy, view
from paceline.nets.policy import forward_pullback
from paceline.spec import EnvSpec

Obs = Mapping[str, NDArray[Any]] | Mapping[str, Tensor]


class ArrayNet(Protocol):
    """A network with a forward pass, and a backward pass for the last forward."""

    gradient: Tensor
    """[size of the flat vector]; `pullback` writes it."""

    def __call__(self, obs: Obs, *, learns: bool = False) -> tuple[Floats, Floats]:
        """Return `params` [N, P] and `value` [N]; the next call overwrites them.

        Args:
            obs: N rows; if `pullback` follows, they must stay unchanged until then.
            learns: Whether `pullback` will be called.
        """

    def pullback(self, d_params: Floats, d_value: Floats) -> None:
        """Write the gradient, given gradients by the outputs of the last call, which must have had `learns=True`."""


def array_net_for(
    policy: nn.Module,
    spec: EnvSpec,
    *,
    learns: bool = True,
    both: bool = True,
    threads: int = 1,
) -> ArrayNet:
    """Return a numpy network if possible, else a torch one; the choice is the same on every machine.

    Args:
        policy: Its parameters must not be moved afterwards.
        spec: Spec of the env.
        learns: Whether gradients are needed.
        both: Whether values are needed; if not, the value tower is skipped where possible.
        threads: Torch threads of the learner; with more than one the numpy network is not used.
    """
    on_cpu = next(policy.parameters()).device.type == "cpu"
    # The exact class: a subclass may override methods that the numpy version would bypass.
    if type(policy) is MLPPolicy and on_cpu and threads == 1:
        return NumpyMLP(policy, learns=learns, both=both)
    return TorchNet(policy, spec, learns=learns)


class TorchNet:
    """Any torch module, on any device.

    Args:
        policy: The network.
        spec: Spec of the env.
        learns: Whether gradients are needed.
    """

    def __init__(self, policy: nn.Module, spec: EnvSpec, *, learns: bool) -> None:
        self._policy, self._spec = policy, spec
        self._device = next(policy.parameters()).device
        self.gradient = FlatGradient(policy).vector if learns else torch.empty(0)
        self._back: Callable[[Tensor, Tensor], None] | None = None

    def __call__(self, obs: Obs, *, learns: bool = False) -> tuple[Floats, Floats]:
        """See `ArrayNet`."""
        self._back = None  # frees the previous graph before the next one, which is as large, is built
        seen = policy_input(self._spec, {name: self._tensor(leaf) for name, leaf in obs.items()})
        if learns:
            params, value, self._back = forward_pullback(self._policy, seen)
        else:
            with torch.no_grad():
                params, value = self._policy(seen)
        return params.cpu().numpy(), value.cpu().numpy()

    def pullback(self, d_params: Floats, d_value: Floats) -> None:
        """See `ArrayNet`."""
        back, self._back = self._back, None
        if back is None:
            raise ValueError("pullback: the last call had learns=False. Call the network with learns=True first.")
        self.gradient.zero_()
        back(self._tensor(d_params), self._tensor(d_value))

    def _tensor(self, array: NDArray[Any] | Tensor) -> Tensor:
        return torch.as_tensor(array, device=self._device)


class NumpyMLP:
    """An `MLPPolicy` in numpy, layer by layer, with both towers or the policy tower alone.

    The outputs of a layer are stored as `[N, towers * width]`: elementwise operations take one call for both towers,
    and matrix products use a strided view per tower.

    Args:
        policy: The network; its parameter memory is used in place.
        learns: Whether gradients are needed.
        both: Whether to compute the value tower.
    """

    def __init__(self, policy: MLPPolicy, *, learns: bool, both: bool) -> None:
        self._policy, self._towers = policy, 2 if both else 1
        self._encode = NumpyEncoder(policy.leaves, checks=True)
        activation = ACTIVATIONS[policy.activation]
        self._activate, self._slope = activation.numpy, activation.numpy_slope
        self.gradient = FlatGradient(policy).vector if learns else torch.empty(0)
        self._weights, self._biases, self._head = _layers(policy, self._towers, view)
        if learns:
            self._d_weights, self._d_biases, self._d_head = _layers(policy, self._towers, _gradient)
        self._log_std = view(policy.log_std) if policy.gaussian else None
        self._outputs = len(self._head[0])
        self._rows = np.empty((0, 0), np.float32)
        self._memory = _Memory([len(bias) for bias in self._biases], self._towers, self._outputs, 0)
        self._at = self._memory

    def __call__(self, obs: Obs, *, learns: bool = False) -> tuple[Floats, Floats]:  # noqa: ARG002 - it costs nothing
        """See `ArrayNet`."""
        rows = self._rows = self._encode({name: np.asarray(leaf) for name, leaf in obs.items()})
        at = self._room_for(len(rows))
        for i, (weight, bias, flat) in enumerate(zip(self._weights, self._biases, at.hidden, strict=True)):
            if i == 0:
                np.matmul(rows, weight, out=flat)
            else:
                np.matmul(at.stacks[i - 1], weight, out=at.stacks[i])
            np.add(flat, bias, out=flat)
            self._activate(flat)
        policy_weight, policy_bias, value_weight, value_bias = self._head
        # As [P, N], returned transposed: a product with few columns is slower than one with few rows.
        np.matmul(policy_weight, self._top(0).T, out=at.params)
        np.add(at.params, policy_bias[:, None], out=at.params)
        if self._towers == 2:
            np.matmul(self._top(1), value_weight, out=at.value)
            np.add(at.value, value_bias, out=at.value)
        if self._log_std is not None:
            return np.concatenate((at.params.T, np.broadcast_to(self._log_std, at.params.T.shape)), 1), at.value
        return at.params.T, at.value

    def pullback(self, d_params: Floats, d_value: Floats) -> None:
        """See `ArrayNet`. Without the value tower its gradients stay zero."""
        at, ones = self._at, self._at.ones
        if self._log_std is not None:
            _gradient(self._policy.log_std)[...] = d_params[:, self._outputs :].sum(0)
            d_params = d_params[:, : self._outputs]
        policy_weight, _, value_weight, _ = self._head
        d_policy_weight, d_policy_bias, d_value_weight, d_value_bias = self._d_head
        np.matmul(d_params.T, self._top(0), out=d_policy_weight)
        np.matmul(ones, d_params, out=d_policy_bias)
        if self._towers == 2:
            np.matmul(d_value, self._top(1), out=d_value_weight)
            d_value_bias[...] = d_value.sum()
        if not self._weights:
            return
        top = at.slope_stacks[-1]
        np.matmul(d_params, policy_weight, out=top[0])
        if self._towers == 2:
            np.multiply(d_value[:, None], value_weight, out=top[1])
        for i in reversed(range(len(self._weights))):
            slope = at.slopes[i]
            self._slope(slope, at.hidden[i], at.scratch[i])
            np.matmul(ones, slope, out=self._d_biases[i])
            if i == 0:
                np.matmul(self._rows.T, slope, out=self._d_weights[0])
            else:
                np.matmul(at.stacks[i - 1].transpose(0, 2, 1), at.slope_stacks[i], out=self._d_weights[i])
                np.matmul(at.slope_stacks[i], self._weights[i].transpose(0, 2, 1), out=at.slope_stacks[i - 1])

    def _top(self, tower: int) -> Floats:
        """Return the input of a tower's head, [N, width]."""
        return self._at.stacks[-1][tower] if self._weights else self._rows

    def _room_for(self, rows: int) -> _Memory:
        """Return buffers for this many rows: the current ones, a part of the existing ones, or larger ones."""
        if rows != self._at.rows:
            if rows > self._memory.rows:
                self._memory = _Memory([len(bias) for bias in self._biases], self._towers, self._outputs, rows)
            self._at = self._memory if rows == self._memory.rows else self._memory.first(rows)
        return self._at


class _Memory:
    """Buffers for the intermediate results of a batch, layer by layer.

    Args:
        widths: Width of each hidden layer, summed over the towers.
        towers: Number of towers.
        outputs: Number of policy outputs.
        rows: Number of rows, N.
    """

    def __init__(self, widths: list[int], towers: int, outputs: int, rows: int) -> None:
        self._towers, self._outputs = towers, outputs
        self._blocks = [[np.empty((rows, width), np.float32) for width in widths] for _ in range(2)]
        shared = np.empty(rows * max(widths, default=0), np.float32)
        self._blocks.append([shared[: rows * width].reshape(rows, width) for width in widths])
        self._params, self._value = np.empty(outputs * rows, np.float32), np.zeros(rows, np.float32)
        self._ones = np.ones(rows, np.float32)
        self._view(rows)

    def first(self, rows: int) -> _Memory:
        """Return views of the same memory for fewer rows."""
        part = copy.copy(self)
        part._view(rows)
        return part

    def _view(self, rows: int) -> None:
        self.rows = rows
        self.hidden, self.slopes, self.scratch = ([block[:rows] for block in blocks] for blocks in self._blocks)
        self.stacks, self.slope_stacks = (
            [self._by_tower(flat) for flat in blocks] for blocks in (self.hidden, self.slopes)
        )
        self.params = self._params[: self._outputs * rows].reshape(self._outputs, rows)
        self.value, self.ones = self._value[:rows], self._ones[:rows]

    def _by_tower(self, flat: Floats) -> Floats:
        """Reshape to `[towers, N, width]`."""
        rows, width = flat.shape
        return flat.reshape(rows, self._towers, width // self._towers).transpose(1, 0, 2)


def _layers(
    policy: MLPPolicy, towers: int, of: Callable[[Tensor], Floats]
) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """Return weights, biases and heads, or their gradients, as views of parameter memory.

    Weights of the first hidden layer are [in, towers * out], those of the others [towers, in, out]. Biases are
    [towers * out].

    Args:
        policy: The network.
        towers: Number of towers; with one, the policy tower.
        of: Returns the memory to view for a parameter: its data or its gradient.
    """
    weights = [of(weight) for weight in policy.weights]
    # In the first layer the axis of the towers is in the middle (nets/mlp.py).
    first = [w.reshape(len(w), 2 * w.shape[2])[:, : towers * w.shape[2]] for w in weights[:1]]
    parts = [*first, *(w[:towers] for w in weights[1:])]
    biases = [of(bias).reshape(-1)[: towers * bias.shape[1]] for bias in policy.biases]
    return parts, biases, [of(p) for p in policy._all[-4:]]


def _gradient(parameter: Tensor) -> Floats:
    if parameter.grad is None:
        raise ValueError("parameter has no .grad. Build FlatGradient(policy) first.")
    return view(parameter.grad)

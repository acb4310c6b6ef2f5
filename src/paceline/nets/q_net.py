"""Networks as Q-learning sees them: arrays in, outputs out, and the way back into a flat gradient.

An update of DQN is small (32 to 256 rows) and there are many: with an MLP, torch spends most of its time on calling
itself. The same layers in numpy take a third of it, on the same parameter memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.nets.features import numpy_encoder, policy_input
from paceline.nets.flat import FlatGradient
from paceline.nets.mlp import Floats, MLPPolicy, numpy_activation
from paceline.nets.policy import forward_pullback
from paceline.spec import EnvSpec

Obs = Mapping[str, NDArray[Any]]


class QNet(Protocol):
    """A network that can be asked, and told what was wrong with its last answer."""

    gradient: Tensor
    """[P] where `pullback` leaves the gradient."""

    def __call__(self, obs: Obs, *, learns: bool = False) -> tuple[Floats, Floats]:
        """`params` [N, A] and `value` [N]; overwritten by the next call.

        Args:
            obs: N rows.
            learns: Whether `pullback` will be asked for.
        """

    def pullback(self, d_params: Floats, d_value: Floats) -> None:
        """Leave the gradient, given slopes by what the last call gave, which was one to learn from."""


def q_net_for(policy: nn.Module, spec: EnvSpec, rows: int, *, learns: bool, both: bool, threads: int = 1) -> QNet:
    """The fastest form of a network here; the same one on every machine.

    Args:
        policy: Its parameters lie where they will stay.
        spec: What it sees.
        rows: Of every call.
        learns: Whether it has a gradient.
        both: Whether the value counts: it is not computed otherwise, where that can be left out.
        threads: Torch threads of the learner. Numpy has one.
    """
    on_cpu = next(policy.parameters()).device.type == "cpu"
    if isinstance(policy, MLPPolicy) and on_cpu and threads == 1:
        return NumpyMLP(policy, rows, learns=learns, both=both)
    return TorchNet(policy, spec, learns=learns)


class TorchNet:
    """Any network, on any device.

    Args:
        policy: The network.
        spec: What it sees.
        learns: Whether it has a gradient.
    """

    def __init__(self, policy: nn.Module, spec: EnvSpec, *, learns: bool) -> None:
        self._policy, self._spec = policy, spec
        self._device = next(policy.parameters()).device
        self.gradient = FlatGradient(policy).vector if learns else torch.empty(0)
        self._back: Callable[[Tensor, Tensor], None] | None = None

    def __call__(self, obs: Obs, *, learns: bool = False) -> tuple[Floats, Floats]:
        """See `QNet`."""
        seen = policy_input(self._spec, {name: self._tensor(leaf) for name, leaf in obs.items()})
        if learns:
            params, value, self._back = forward_pullback(self._policy, seen)
        else:
            with torch.no_grad():
                params, value = self._policy(seen)
        return params.cpu().numpy(), value.cpu().numpy()

    def pullback(self, d_params: Floats, d_value: Floats) -> None:
        """See `QNet`."""
        self.gradient.zero_()
        if self._back is not None:
            self._back(self._tensor(d_params), self._tensor(d_value))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


class NumpyMLP:
    """An MLP in numpy, layer by layer, both towers or one.

    Args:
        policy: The network; its parameter memory is used in place.
        rows: N, of every call.
        learns: Whether it has a gradient.
        both: Whether the value tower is computed.
    """

    def __init__(self, policy: MLPPolicy, rows: int, *, learns: bool, both: bool) -> None:
        self._towers = (0, 1) if both else (0,)
        self._activate, self._slope = numpy_activation(policy.activation)
        self._encode = numpy_encoder(policy.leaves, rows)
        self.gradient = FlatGradient(policy).vector if learns else torch.empty(0)
        self._weights, self._biases = _layers(policy, lambda parameter: parameter.detach())
        self._head = [_array(p.detach()) for p in policy._all[-4:]]
        if learns:
            self._d_weights, self._d_biases = _layers(policy, _gradient)
            self._d_head = [_array(_gradient(p)) for p in policy._all[-4:]]
        self._value = np.zeros(rows, np.float32)
        self._seen: list[list[Floats]] = []  # by tower, the input of each layer and of the head

    def __call__(self, obs: Obs, *, learns: bool = False) -> tuple[Floats, Floats]:  # noqa: ARG002 - it costs nothing
        """See `QNet`."""
        rows = self._encode(obs)
        self._seen = []
        for tower in self._towers:
            seen = [rows]
            for weight, bias in zip(self._weights, self._biases, strict=True):
                hidden = seen[-1] @ weight[tower]
                hidden += bias[tower]
                self._activate(hidden)
                seen.append(hidden)
            self._seen.append(seen)
        policy_weight, policy_bias, value_weight, value_bias = self._head
        params = self._seen[0][-1] @ policy_weight.T
        params += policy_bias
        if len(self._towers) == 2:
            np.dot(self._seen[1][-1], value_weight, out=self._value)
            self._value += value_bias
        return params, self._value

    def pullback(self, d_params: Floats, d_value: Floats) -> None:
        """See `QNet`. What the value tower has is left at zero where it is not computed."""
        policy_weight, _, value_weight, _ = self._head
        d_policy_weight, d_policy_bias, d_value_weight, d_value_bias = self._d_head
        np.matmul(d_params.T, self._seen[0][-1], out=d_policy_weight)
        np.add.reduce(d_params, 0, out=d_policy_bias)
        self._tower_back(0, d_params @ policy_weight)
        if len(self._towers) == 2:
            np.dot(d_value, self._seen[1][-1], out=d_value_weight)
            d_value_bias[...] = d_value.sum()
            self._tower_back(1, d_value[:, None] * value_weight)

    def _tower_back(self, tower: int, slope: Floats) -> None:
        seen = self._seen[tower]
        for layer in reversed(range(len(self._weights))):
            slope = self._slope(slope, seen[layer + 1])
            np.matmul(seen[layer].T, slope, out=self._d_weights[layer][tower])
            np.add.reduce(slope, 0, out=self._d_biases[layer][tower])
            if layer:
                slope = slope @ self._weights[layer][tower].T


def _layers(policy: MLPPolicy, of: Callable[[Tensor], Tensor]) -> tuple[list[list[Floats]], list[list[Floats]]]:
    """Weights [in, out] and biases [out] of every hidden layer, by tower; or their gradients."""
    weights = [_array(of(weight)) for weight in policy.weights]
    biases = [_array(of(bias)) for bias in policy.biases]
    # The first layer has its towers in the middle (nets/mlp.py).
    split = [[w[:, t] if i == 0 else w[t] for t in (0, 1)] for i, w in enumerate(weights)]
    return split, [[b[0], b[1]] for b in biases]


def _gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        raise ValueError("its gradient has no place yet")
    return parameter.grad


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.numpy()
    return array

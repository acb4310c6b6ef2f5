"""The multi-layer perceptron: a policy tower and a value tower of equal shape, computed side by side.

    obs [N, d] --+-- tanh [N, h] -- tanh [N, h] -- params [N, P]
                 +-- tanh [N, h] -- tanh [N, h] -- value  [N]

Both towers are one stack `[2, N, h]`, so each layer is one batched product. Collecting uses numpy on this module's
parameter memory (nets/mlp_actor.py), and so does learning on the CPU with one thread (nets/array_net.py). The torch
code here is for learning on GPUs and with several threads (`learner_threads`), see `MLPPolicy.forward_pullback`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.errors import ConfigError
from paceline.nets.features import encode, leaves_of
from paceline.nets.mlp_actor import MLPActor
from paceline.spec import EnvSpec

Activation = Literal["tanh", "relu", "elu"]
Floats = NDArray[np.float32]

_MINUS_ONE = torch.tensor(-1.0)


class MLPPolicy(nn.Module):
    """Separate policy and value towers over vectors, categories and bits.

    Weights are initialised orthogonally, with gain sqrt(2) in hidden layers, 0.01 for the policy's output (so that the
    first policy is nearly uniform) and 1 for the value's output. For Box actions the log standard deviation is a free
    parameter that does not depend on the observation; it starts at zero.

    Args:
        spec: Names and shapes of observations and actions; raises ConfigError if there are images.
        hidden_sizes: Width of each hidden layer, the same in both towers; may be empty.
        activation: Non-linearity after each hidden layer.
    """

    def __init__(self, spec: EnvSpec, hidden_sizes: Sequence[int] = (64, 64), activation: Activation = "tanh") -> None:
        super().__init__()
        check_mlp(spec, hidden_sizes, activation)
        self.leaves = spec.obs
        self.activation: Activation = activation
        self.gaussian = spec.action.kind == "gaussian"
        outputs = spec.action.param_size // 2 if self.gaussian else spec.action.param_size

        widths = [sum(leaf.features for leaf in spec.obs), *hidden_sizes]
        # The first layer is stored as [d, 2h], so that learning computes both towers with one product.
        shapes = [(a, 2, b) if i == 0 else (2, a, b) for i, (a, b) in enumerate(itertools.pairwise(widths))]
        self.weights = nn.ParameterList(torch.empty(shape) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(2, width) for width in hidden_sizes)
        self.policy_weight = nn.Parameter(torch.empty(outputs, widths[-1]))
        self.policy_bias = nn.Parameter(torch.zeros(outputs))
        self.value_weight = nn.Parameter(torch.empty(widths[-1]))
        self.value_bias = nn.Parameter(torch.zeros(()))
        if self.gaussian:
            self.log_std = nn.Parameter(torch.zeros(outputs))
        # A plain tuple of the same objects: iterating over a ParameterList costs tens of microseconds per forward.
        layers = (t for pair in zip(self.weights, self.biases, strict=True) for t in pair)
        self._all = (*layers, self.policy_weight, self.policy_bias, self.value_weight, self.value_bias)
        with torch.no_grad():
            for tower in (0, 1):
                for i, weight in enumerate(self.weights):
                    part = weight[:, tower] if i == 0 else weight[tower]
                    part.copy_(nn.init.orthogonal_(torch.empty_like(part), math.sqrt(2)))
            nn.init.orthogonal_(self.policy_weight, 0.01)
            nn.init.orthogonal_(self.value_weight.view(1, -1), 1.0)

    def forward(self, obs: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution parameters `[N, P]` and values `[N]`."""
        rows = encode(leaves_of(obs, self.leaves), self.leaves)
        params, value, _ = _forward(rows, self.activation, self._all)
        if self.gaussian:
            params = torch.cat((params, self.log_std.expand_as(params)), 1)
        return params, value

    @torch.no_grad()
    def forward_pullback(
        self, obs: Tensor | Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Callable[[Tensor, Tensor], None]]:
        """Return the outputs, and a function that adds the gradient of every parameter to its `.grad`.

        The same as `forward` and `backward()`, but with the gradient written out by hand: autograd takes 1.1 to 1.5
        times as long (64 to 4096 rows, widths 64 to 512, one thread; `make bench-kernels` shows it for 1024
        rows and width 64: `towers` is autograd, `torch` is this method).

        Returns:
            Parameters `[N, P]`, values `[N]` and the function, which takes the gradients by these two.
        """
        rows = encode(leaves_of(obs, self.leaves), self.leaves)
        params, value, hidden = _forward(rows, self.activation, self._all)
        outputs = params.shape[1]
        if self.gaussian:
            params = torch.cat((params, self.log_std.expand_as(params)), 1)

        def pullback(d_params: Tensor, d_value: Tensor) -> None:
            grads = _backward(rows, self.activation, hidden, self._all, d_params[:, :outputs], d_value)
            if self.gaussian:
                _add_grad(self.log_std, d_params[:, outputs:].sum(0))
            for parameter, grad in zip(self._all, grads, strict=True):
                _add_grad(parameter, grad)

        return params, value, torch.no_grad()(pullback)

    def numpy_actor(self, groups: int, group_size: int) -> MLPActor:
        """Return an actor for `groups * group_size` rows that computes in numpy on this module's parameter memory."""
        hidden = list(zip(map(view, self.weights), map(view, self.biases), strict=True))
        # In the first layer the axis of the towers is in the middle.
        policy, value = (
            [(w[:, tower] if i == 0 else w[tower], b[tower]) for i, (w, b) in enumerate(hidden)] for tower in (0, 1)
        )
        policy.append((view(self.policy_weight).T, view(self.policy_bias)))
        value.append((view(self.value_weight)[:, None], view(self.value_bias)))
        log_std = view(self.log_std) if self.gaussian else None
        return MLPActor(self.leaves, policy, value, log_std, ACTIVATIONS[self.activation].numpy, groups, group_size)


def check_mlp(spec: EnvSpec, hidden_sizes: Sequence[int], activation: Activation) -> None:
    """Raise ConfigError if an MLP of these layers cannot be built for the env."""
    images = [leaf.name for leaf in spec.obs if leaf.kind == "image"]
    if images:
        raise ConfigError(
            f"policy 'mlp': cannot read images (leaf {images[0]!r}). Use policy='nature_cnn' or 'impala_cnn'."
        )
    if activation not in ACTIVATIONS:
        raise ConfigError(f"activation={activation!r}: must be one of {', '.join(ACTIVATIONS)}.")
    if any(size < 1 for size in hidden_sizes):
        raise ConfigError(f"hidden_sizes={tuple(hidden_sizes)}: every width must be at least 1.")


def _forward(rows: Tensor, activation: Activation, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Compute both towers on `[N, d]` rows.

    Args:
        rows: Input features.
        activation: Non-linearity of every hidden layer.
        weights: `w [2, in, out], b [2, out]` of each hidden layer (the first `w` as `[in, 2, out]`), then policy
            `w [P, h], b [P]` and value `w [h], b []`.

    Returns:
        Policy outputs `[N, P]`, values `[N]` and the outputs of the hidden layers, `[2, N, h]` each.
    """
    act = ACTIVATIONS[activation]
    stack = rows.expand(2, *rows.shape)
    hidden: list[Tensor] = []
    for weight, bias in zip(weights[:-4:2], weights[1:-4:2], strict=True):
        weight = weight if hidden else weight.transpose(0, 1)
        stack = act.forward(torch.baddbmm(bias.unsqueeze(1), stack, weight, beta=act.scale, alpha=act.scale))
        hidden.append(stack)
    policy_weight, policy_bias, value_weight, value_bias = weights[-4:]
    # A product with few columns is slower than one with few rows (1024 x 64 x 2: 107 against 29 microseconds), so the
    # policy head is computed as [P, N] and returned transposed.
    params = torch.addmm(policy_bias.unsqueeze(1), policy_weight, stack[0].T).T
    return params, torch.mv(stack[1], value_weight) + value_bias, hidden


def _backward(
    rows: Tensor,
    activation: Activation,
    hidden: Sequence[Tensor],
    weights: Sequence[Tensor],
    d_params: Tensor,
    d_value: Tensor,
) -> list[Tensor]:
    """Return the gradients of `_forward` by its weights, computed layer by layer on the stack of both towers."""
    act = ACTIVATIONS[activation]
    stacks = [rows.expand(2, *rows.shape), *hidden]
    policy_weight, _, value_weight, _ = weights[-4:]

    top = stacks[-1]
    grads = [d_params.T @ top[0], d_params.sum(0), d_value @ top[1], d_value.sum()]
    d_stack = torch.empty(top.shape, dtype=top.dtype, device=top.device)
    torch.mm(d_params, policy_weight, out=d_stack[0])
    torch.mul(d_value.unsqueeze(1), value_weight, out=d_stack[1])
    for i in reversed(range(len(hidden))):
        d_stack = act.backward(d_stack, stacks[i + 1])
        d_weight = torch.bmm(stacks[i].transpose(1, 2), d_stack)
        grads[:0] = [d_weight if i else d_weight.transpose(0, 1), d_stack.sum(1)]
        if i:
            d_stack = torch.bmm(d_stack, weights[2 * i].transpose(1, 2))
    return grads


def _add_grad(parameter: Tensor, grad: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = grad.clone()
    else:
        parameter.grad.add_(grad)


class _Activation(NamedTuple):
    """One non-linearity and its gradient, which is computed from the result alone, in torch and in numpy."""

    forward: Callable[[Tensor], Tensor]
    """Applied to `scale` times the pre-activation, which it may overwrite."""
    backward: Callable[[Tensor, Tensor], Tensor]
    """(gradient by the result, result) -> gradient by the pre-activation."""
    numpy: Callable[[Floats], object]
    """The forward in numpy, in place."""
    numpy_slope: Callable[[Floats, Floats, Floats], object]
    """(gradient by the result, result, scratch array): multiplies the first by the derivative, in place."""
    scale: float = 1.0
    """Factor of the pre-activation."""


def _tanh_of_half(doubled: Tensor) -> Tensor:
    # tanh(x) = 2 sigmoid(2x) - 1 up to the last bit or two, at a third of the cost of torch.tanh on the CPU
    # (1024 x 128: 145 against 430 microseconds). The matrix product that comes before doubles x at no cost.
    sigmoid = doubled.sigmoid_()
    return torch.add(_MINUS_ONE, sigmoid, alpha=2.0, out=None if torch.is_grad_enabled() else doubled)


def _elu_numpy(x: Floats) -> None:
    np.copyto(x, np.expm1(np.minimum(x, 0.0)), where=x < 0)


_ONE = np.float32(1.0)


def _tanh_slope(slope: Floats, y: Floats, scratch: Floats) -> None:
    np.multiply(y, y, out=scratch)
    np.subtract(_ONE, scratch, out=scratch)
    np.multiply(slope, scratch, out=slope)


def _relu_slope(slope: Floats, y: Floats, scratch: Floats) -> None:
    np.sign(y, out=scratch)  # 0 or 1
    np.multiply(slope, scratch, out=slope)


def _elu_slope(slope: Floats, y: Floats, scratch: Floats) -> None:
    np.add(y, _ONE, out=scratch)
    np.minimum(scratch, _ONE, out=scratch)
    np.multiply(slope, scratch, out=slope)


# Autograd calls the same aten functions for these layers.
ACTIVATIONS: dict[str, _Activation] = {
    "tanh": _Activation(
        _tanh_of_half, torch.ops.aten.tanh_backward, lambda x: np.tanh(x, out=x), _tanh_slope, scale=2.0
    ),
    "relu": _Activation(
        torch.relu_,
        lambda d, y: torch.ops.aten.threshold_backward(d, y, 0.0),
        lambda x: np.maximum(x, 0.0, out=x),
        _relu_slope,
    ),
    "elu": _Activation(
        nn.functional.elu_,
        lambda d, y: torch.ops.aten.elu_backward(d, 1.0, 1.0, 1.0, True, y),
        _elu_numpy,
        _elu_slope,
    ),
}
"""Non-linearities by the values of the setting `activation`."""


def view(parameter: Tensor) -> Floats:
    """Return the parameter's memory as an array, without a copy."""
    array: Floats = parameter.detach().numpy()
    return array

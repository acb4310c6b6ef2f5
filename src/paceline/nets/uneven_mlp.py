"""The multi-layer perceptron with a value tower of other layers than the policy tower.

Collecting uses numpy, as that of `MLPPolicy`. Learning uses torch: `MLPPolicy` learns in numpy because both of its
towers are one stack, which needs equal widths.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from paceline.nets.features import encode, leaves_of
from paceline.nets.mlp import ACTIVATIONS, Activation, check_mlp, view
from paceline.nets.mlp_actor import Floats, MLPActor
from paceline.spec import EnvSpec

_LAYERS: Mapping[Activation, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


class UnevenMLP(nn.Module):
    """Policy and value towers with layers of their own. Initialised as `MLPPolicy`.

    Args:
        spec: Names and shapes of observations and actions; raises ConfigError if there are images.
        hidden_sizes: Width of each hidden layer of the policy tower; may be empty.
        value_hidden_sizes: The same for the value tower.
        activation: Non-linearity after each hidden layer.
    """

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: Sequence[int],
        value_hidden_sizes: Sequence[int],
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        check_mlp(spec, (*hidden_sizes, *value_hidden_sizes), activation)
        self.leaves, self.activation, self.gaussian = spec.obs, activation, spec.action.kind == "gaussian"
        outputs = spec.action.param_size // 2 if self.gaussian else spec.action.param_size
        features = sum(leaf.features for leaf in spec.obs)
        self.policy_tower = tower((features, *hidden_sizes, outputs), activation, gain=0.01)
        self.value_tower = tower((features, *value_hidden_sizes, 1), activation, gain=1.0)
        if self.gaussian:
            self.log_std = nn.Parameter(torch.zeros(outputs))

    def forward(self, obs: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution parameters `[N, P]` and values `[N]`."""
        rows = encode(leaves_of(obs, self.leaves), self.leaves)
        params, value = self.policy_tower(rows), self.value_tower(rows).squeeze(-1)
        if self.gaussian:
            params = torch.cat((params, self.log_std.expand_as(params)), 1)
        return params, value

    def numpy_actor(self, groups: int, group_size: int) -> MLPActor:
        """Return an actor for `groups * group_size` rows that computes in numpy on this module's parameter memory."""
        log_std = view(self.log_std) if self.gaussian else None
        policy, value = (_arrays(part) for part in (self.policy_tower, self.value_tower))
        return MLPActor(self.leaves, policy, value, log_std, ACTIVATIONS[self.activation].numpy, groups, group_size)


def tower(widths: Sequence[int], activation: Activation, *, gain: float) -> nn.Sequential:
    """Return linear layers with an activation between them, initialised as those of `MLPPolicy`.

    Args:
        widths: Width of the input, of each hidden layer and of the output.
        activation: Non-linearity after each hidden layer.
        gain: Gain of the output layer.
    """
    layers: list[nn.Module] = []
    for width, after in itertools.pairwise(widths):
        layer = nn.Linear(width, after)
        nn.init.orthogonal_(layer.weight, math.sqrt(2))
        nn.init.zeros_(layer.bias)
        layers += [layer, _LAYERS[activation]()]
    nn.init.orthogonal_(layer.weight, gain)
    return nn.Sequential(*layers[:-1])


def _arrays(layers: nn.Sequential) -> list[tuple[Floats, Floats]]:
    """Weights `[in, out]` and biases `[out]` of each layer, as views."""
    return [(view(layer.weight).T, view(layer.bias)) for layer in layers if isinstance(layer, nn.Linear)]

"""The multi-layer perceptron behind a features extractor of the user's, as in stable-baselines3.

obs -- extractor -- features [N, F] --+-- policy tower -- params [N, P]
                                      +-- value tower  -- value  [N]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from paceline.errors import ConfigError
from paceline.nets.features import policy_input
from paceline.nets.mlp import Activation
from paceline.nets.uneven_mlp import tower
from paceline.spec import EnvSpec

PROBED_ROWS = 3
"""Observations in the batch of zeros that shows the number of features."""


class ExtractedMLP(nn.Module):
    """An extractor that both towers share, and the towers of an MLP on its features.

    Args:
        make: Constructs the extractor: called as `make(observation_space)`.
        name: Its name, for error texts.
        spec: Names and shapes of observations and actions.
        hidden_sizes: Width of each hidden layer of the policy tower; may be empty.
        value_hidden_sizes: The same for the value tower.
        activation: Non-linearity after each hidden layer.

    Raises:
        ConfigError: The extractor cannot be constructed, or does not return features.
    """

    def __init__(
        self,
        make: Callable[..., object],
        name: str,
        spec: EnvSpec,
        hidden_sizes: Sequence[int],
        value_hidden_sizes: Sequence[int],
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        self.gaussian = spec.action.kind == "gaussian"
        outputs = spec.action.param_size // 2 if self.gaussian else spec.action.param_size
        try:
            extractor = make(spec.observation_space)
        except Exception as error:
            raise ConfigError(
                f"features_extractor {name!r}: {name}(observation_space) raised {type(error).__name__}: {error}. "
                "Accept this argument."
            ) from error
        if not isinstance(extractor, nn.Module):
            raise ConfigError(
                f"features_extractor {name!r}: must construct a torch.nn.Module (got a {type(extractor).__name__})."
            )
        self.features_extractor = extractor
        features = self._features(name, spec)
        self.policy_tower = tower((features, *hidden_sizes, outputs), activation, gain=0.01)
        self.value_tower = tower((features, *value_hidden_sizes, 1), activation, gain=1.0)
        if self.gaussian:
            self.log_std = nn.Parameter(torch.zeros(outputs))

    def forward(self, obs: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Distribution parameters `[N, P]` and values `[N]`."""
        features = self.features_extractor(obs)
        params, value = self.policy_tower(features), self.value_tower(features).squeeze(-1)
        if self.gaussian:
            params = torch.cat((params, self.log_std.expand_as(params)), 1)
        return params, value

    def _features(self, name: str, spec: EnvSpec) -> int:
        """The number of features, from a batch of zeros."""
        zeros = {
            leaf.name: torch.from_numpy(np.full((PROBED_ROWS, *leaf.shape), leaf.start, leaf.dtype))
            for leaf in spec.obs
        }
        seen = policy_input(spec, zeros)
        try:
            with torch.no_grad():
                features = self.features_extractor(seen)
        except Exception as error:
            shapes = {key: tuple(leaf.shape) for key, leaf in zeros.items()}
            raise ConfigError(
                f"features_extractor {name!r}: forward raised {type(error).__name__} on {shapes}: {error}. It must "
                "return features [N, F]."
            ) from error
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != PROBED_ROWS:
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise ConfigError(
                f"features_extractor {name!r}: must return features of shape [N, F] for N observations (got {got} for "
                f"{PROBED_ROWS}). Flatten them: features.flatten(1)."
            )
        return features.shape[1]

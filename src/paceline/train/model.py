"""A policy for prediction: weights and observation statistics, without workers and shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paceline.config.names import REMOVED
from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe
from paceline.errors import CheckpointError, ConfigError
from paceline.memory.parts import part, under
from paceline.nets.flat import move_parameters, size_of
from paceline.nets.normalise import ObsNormaliser
from paceline.runtime.watchdog import watched
from paceline.spec import EnvSpec
from paceline.train import checkpoint
from paceline.train.algorithms import algorithm
from paceline.train.checkpoint import Snapshot, State
from paceline.train.evaluate import Predictor
from paceline.train.recipes import env_recipe, identity, policy_recipe

RUN_SETTINGS = (
    "output_dir",
    "checkpoint_dir",
    "resume",
    "init_from",
    "overwrite",
    "quiet",
    "track",
    "trust_env_state",
)
"""Settings of the saved run that an agent loaded from it does not take over."""


@dataclass(frozen=True, slots=True)
class Model:
    """A policy with its weights and observation statistics. Owns their memory."""

    recipe: EnvRecipe
    spec: EnvSpec
    policy: nn.Module
    """The network. Its parameters are views of `weights`."""
    identity: dict[str, Any]
    weights: torch.Tensor  # [P]
    obs_norm: ObsNormaliser | None
    predictor: Predictor

    def load_arrays(self, arrays: State) -> None:
        """Copy weights and observation statistics from `arrays`, as `Training.model_state` returns them."""
        self.weights.copy_(torch.from_numpy(arrays["learner/weights"]))
        if self.obs_norm is not None:
            self.obs_norm.load(part(arrays, "obs_norm/"))

    def arrays(self) -> State:
        """The arrays of a snapshot of this model. Views, not copies."""
        return model_state(self.weights, self.obs_norm)


def model_state(weights: torch.Tensor, obs_norm: ObsNormaliser | None) -> State:
    """Weights and observation statistics, which prediction needs, as a snapshot stores them. Views, not copies."""
    state: State = {"learner/weights": weights.numpy()}
    return state if obs_norm is None else state | under("obs_norm/", obs_norm.state())


def saved_settings(snapshot: Snapshot) -> dict[str, Any]:
    """The settings that a snapshot was saved with, by flag name, without those of `RUN_SETTINGS` and removed ones.

    Raises:
        CheckpointError: The snapshot contains no settings.
    """
    try:
        saved = {key: value for section in snapshot.meta["config"].values() for key, value in section.items()}
    except (KeyError, AttributeError):
        raise CheckpointError(f"{snapshot.path}: contains no settings. Use another checkpoint.") from None
    return {key: value for key, value in saved.items() if key not in RUN_SETTINGS and key not in REMOVED}


def require_text(snapshot: Snapshot, saved: Mapping[str, Any]) -> None:
    """Raise ConfigError if a saved setting that is needed was a Python object, of which only the name is saved."""
    for name in ("env", "eval_env", "features_extractor"):
        if str(saved.get(name)).startswith("<Python object"):
            raise ConfigError(
                f"{snapshot.path}: the {name} was a Python object, which is not saved. Pass it in Python: "
                f"PPO.load(path, {name}=...)."
            )


def load(config: TrainConfig, snapshot: Snapshot | None = None) -> Model:
    """Build the policy of a config. Makes an env to read its spaces.

    Args:
        config: All settings.
        snapshot: Weights and statistics to load; None for initial weights.

    Raises:
        CheckpointError: The snapshot belongs to another env, algorithm or network.
    """
    recipe = env_recipe(config)
    with watched("start", config.env.timeouts_s, who=f"env {recipe.name!r}"):
        spec = recipe.probe()
    policy = policy_recipe(config).build(spec)
    own_identity = identity(config, spec, size_of(policy))
    weights = torch.empty(size_of(policy))
    move_parameters(policy, weights)
    obs_norm = ObsNormaliser(spec) if config.env.normalize_obs else None
    predictor = Predictor(
        policy, spec, obs_norm, seed=config.run.seed, head=algorithm(config.run.algo).value_head(config, spec)
    )
    model = Model(recipe, spec, policy, own_identity, weights, obs_norm, predictor)
    if snapshot is not None:
        checkpoint.require_match(snapshot, own_identity)
        model.load_arrays(snapshot.arrays)
    return model

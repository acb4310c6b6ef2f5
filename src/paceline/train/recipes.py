"""Recipes (picklable descriptions) of env, network and reward shaper, as a config describes them."""

from __future__ import annotations

from typing import Any

from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe
from paceline.envs.shaping import ShaperRecipe
from paceline.nets.policy import PolicyRecipe
from paceline.runtime.protocol import J, Runtime
from paceline.spec import EnvSpec
from paceline.train.restarts import Restarts


def env_recipe(config: TrainConfig) -> EnvRecipe:
    """The recipe of the env."""
    env = config.env
    return EnvRecipe(
        source=env.env,
        kwargs=env.env_kwargs,
        wrappers=env.wrappers,
        frame_stack=env.frame_stack,
        native_vector=env.native_vector,
    )


def shaper_recipe(config: TrainConfig) -> ShaperRecipe | None:
    """The recipe of the reward shaper; None without one."""
    env = config.env
    return None if env.shaper is None else ShaperRecipe(source=env.shaper, kwargs=env.shaper_kwargs)


def restarts_for(config: TrainConfig, runtime: Runtime[J]) -> Restarts[J]:
    """What replaces lost workers of a runtime, by the settings of the config."""
    return Restarts(runtime, config.parallel.recovery, config.parallel.max_restarts)


def policy_recipe(config: TrainConfig) -> PolicyRecipe:
    """The recipe of the network."""
    policy = config.policy
    return PolicyRecipe(
        policy=policy.policy, hidden_sizes=policy.hidden_sizes, activation=policy.activation, seed=config.run.seed
    )


def identity(config: TrainConfig, spec: EnvSpec, weights: int) -> dict[str, Any]:
    """Properties that a snapshot must share for its weights to fit this env, algorithm and network.

    Args:
        config: All settings.
        spec: Observations and actions of the env.
        weights: Number of parameters.
    """
    action = spec.action
    policy = config.policy.policy
    return {
        "algo": config.run.algo,
        "obs": [[leaf.name, list(leaf.shape), str(leaf.dtype)] for leaf in spec.obs],
        "action": [action.kind, list(action.shape), list(action.nvec)],
        "policy": policy if isinstance(policy, str) else policy.__qualname__,
        "hidden_sizes": list(config.policy.hidden_sizes),
        "activation": config.policy.activation,
        "weights": weights,
        "normalize_obs": config.env.normalize_obs,
    }

"""Recipes (picklable descriptions) of env, network and reward shaper, as a config describes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paceline.config.train_config import TrainConfig
from paceline.envs.make import EnvRecipe, EnvSource
from paceline.envs.shaping import ShaperRecipe
from paceline.errors import ConfigError
from paceline.nets.policy import PolicyRecipe
from paceline.runtime.protocol import J, Runtime
from paceline.runtime.watchdog import watched
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
        # A checkpoint with pickled vector envs must not depend on how many groups a worker has.
        vector_per_group=config.run.trust_env_state,
    )


def evaluation_recipe(config: TrainConfig, spec: EnvSpec, env: EnvSource | None = None) -> EnvRecipe:
    """The recipe of the env for evaluations: that of the training env, unless `eval_env` or its arguments are set.

    Args:
        config: All settings.
        spec: Observations and actions of the training env.
        env: An env to use instead of that of the settings.

    Raises:
        ConfigError: The evaluation env has other spaces than the training env.
    """
    run, trained = config.run, env_recipe(config)
    if env is not None:
        recipe = replace(trained, source=env, kwargs={})
    elif run.eval_env is not None:
        recipe = replace(trained, source=run.eval_env, kwargs=run.eval_env_kwargs)
    elif run.eval_env_kwargs:
        recipe = replace(trained, kwargs={**trained.kwargs, **run.eval_env_kwargs})
    else:
        return trained
    with watched("start", config.env.timeouts_s, who=f"eval_env {recipe.name!r}"):
        found = recipe.probe()
    if (found.obs, found.action_space, found.masked) != (spec.obs, spec.action_space, spec.masked):
        raise ConfigError(
            f"eval_env={recipe.name!r}: its spaces must be those of env={trained.name!r} ({_spaces(found)}; "
            f"{_spaces(spec)}). Use an env with the same observations and actions."
        )
    return recipe


def _spaces(spec: EnvSpec) -> str:
    masks = " with masks" if spec.masked else ""
    return f"{spec.observation_space}, {spec.action_space}{masks}"


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
        policy=policy.policy,
        hidden_sizes=policy.hidden_sizes,
        value_hidden_sizes=policy.value_hidden_sizes,
        activation=policy.activation,
        features_extractor=policy.features_extractor,
        seed=config.run.seed,
    )


def identity(config: TrainConfig, spec: EnvSpec, weights: int) -> dict[str, Any]:
    """Properties that a snapshot must share for its weights to fit this env, algorithm and network.

    Args:
        config: All settings.
        spec: Observations and actions of the env.
        weights: Number of parameters.
    """
    action = spec.action
    policy, extractor = config.policy.policy, config.policy.features_extractor
    values = config.policy.value_hidden_sizes
    return {
        "algo": config.run.algo,
        "obs": [[leaf.name, list(leaf.shape), str(leaf.dtype)] for leaf in spec.obs],
        "action": [action.kind, list(action.shape), list(action.nvec)],
        "policy": policy if isinstance(policy, str) else policy.__qualname__,
        "hidden_sizes": list(config.policy.hidden_sizes),
        "value_hidden_sizes": None if values is None else list(values),
        "activation": config.policy.activation,
        "features_extractor": extractor.__qualname__ if isinstance(extractor, type) else extractor,
        "weights": weights,
        "normalize_obs": config.env.normalize_obs,
    }

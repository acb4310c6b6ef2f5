"""Evaluates a trained defender as CAGE Challenge 2 does: mean cumulative reward after 30, 50 and 100 steps.

Neither the attacker nor the defender knows the length of the episode, so the first 30 steps of a longer episode are an
episode of 30 steps. One set of episodes therefore gives all results. Vector envs play the episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.training import PLAIN_ENV, WORKFLOW_ENV
from paceline.envs.make import EnvRecipe
from paceline.envs.seeding import group_seed
from paceline.errors import ConfigError, check_range
from paceline.nets.actor import Actor, actor_for
from paceline.ops.distributions import ActionHead, head_for
from paceline.spec import PLAIN
from paceline.train import checkpoint, model

STEPS = (30, 50, 100)
AT_ONCE = 100
"""Episodes that are played in parallel."""
_SCORES = 0x5C02_E500
"""Mixed into the seed, so that these episodes differ from those of training and evaluation."""


@dataclass(frozen=True, slots=True)
class DefenceScore:
    """Result against one attacker after one number of steps."""

    red_agent: str
    steps: int
    mean: float
    error: float
    """Standard error of the mean."""
    episodes: int


@dataclass(frozen=True, slots=True)
class DefenceScores:
    """All results of one run."""

    snapshot: Path
    trained_steps: int | None
    rules: str
    rows: tuple[DefenceScore, ...]


def scores(
    path: Path,
    *,
    episodes: int = 1000,
    steps: Sequence[int] = STEPS,
    red_agents: Sequence[str] = (),
    seed: int = 0,
    deterministic: bool = True,
    **game: Any,
) -> DefenceScores:
    """Evaluate the newest weights of a run.

    Args:
        path: A run, a checkpoint or a saved model.
        episodes: Number of episodes against each attacker.
        steps: Numbers of steps after which the cumulative reward is reported.
        red_agents: Attackers. Default: the one that the run was trained against.
        seed: Seed of the episodes.
        deterministic: Whether to take the most probable action instead of a sample.
        **game: Arguments of the env that replace those of the run.

    Raises:
        CheckpointError: The path has no checkpoint or model, or it is damaged.
        ConfigError: The run was trained on another env.
    """
    check_range("episodes", episodes, "Try 1000.", at_least=1)
    for at in steps or (0,):
        check_range("steps", at, "Try 30,50,100.", at_least=1)
    snapshot = checkpoint.load(checkpoint.find(path))
    config = TrainConfig.from_flat(**model.saved_settings(snapshot))
    if config.env.env not in (PLAIN_ENV, WORKFLOW_ENV):
        raise ConfigError(f"{snapshot.path}: was trained on {config.env_name}. Use paceline eval.")
    loaded = model.load(config, snapshot)
    kwargs = {**loaded.recipe.kwargs, **game, "max_steps": max(steps)}
    actor = actor_for(loaded.policy, loaded.spec, 1, AT_ONCE, loaded.obs_norm)
    head = head_for(loaded.spec.action)
    rows: list[DefenceScore] = []
    for red_agent in red_agents or (kwargs["red_agent"],):
        recipe = replace(loaded.recipe, kwargs={**kwargs, "red_agent": red_agent}, native_vector="always")
        returns = play(recipe, actor, head, episodes=episodes, steps=steps, seed=seed, deterministic=deterministic)
        spread = returns.std(0, ddof=1) / math.sqrt(episodes) if episodes > 1 else np.full(len(steps), math.nan)
        rows += [
            DefenceScore(red_agent, at, float(returns[:, k].mean()), float(spread[k]), episodes)
            for k, at in enumerate(steps)
        ]
    return DefenceScores(snapshot.path, snapshot.meta.get("steps"), str(kwargs.get("rules", "")), tuple(rows))


def play(
    recipe: EnvRecipe,
    actor: Actor,
    head: ActionHead,
    *,
    episodes: int,
    steps: Sequence[int],
    seed: int,
    deterministic: bool = True,
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Play episodes; returns the cumulative reward [episodes, len(steps)] after each number of steps.

    Args:
        recipe: An env that has a vector implementation.
        actor: The policy, for one group of `AT_ONCE` envs.
        head: Turns the outputs of the actor into actions.
        episodes: Number of episodes.
        steps: Numbers of steps after which the reward is read.
        seed: Seed of the episodes.
        deterministic: Whether to take the most probable action instead of a sample.
    """
    envs = recipe.make_vector(AT_ONCE)
    generator = np.random.default_rng([seed, _SCORES])
    found = np.zeros((-(-episodes // AT_ONCE) * AT_ONCE, len(steps)))
    try:
        for first in range(0, episodes, AT_ONCE):
            obs, _ = envs.reset(seed=group_seed(seed ^ _SCORES, first // AT_ONCE))
            total = np.zeros(AT_ONCE)
            for step in range(1, max(steps) + 1):
                params, _ = actor({PLAIN: obs})
                if deterministic:
                    action = head.mode(params, None)
                else:
                    action = head.choose(params, head.draw_noise(generator, (AT_ONCE,)), None)
                obs, reward, _, _, _ = envs.step(action)
                total += reward
                for k, at in enumerate(steps):
                    if at == step:
                        found[first : first + AT_ONCE, k] = total
    finally:
        envs.close()
    return found[:episodes]

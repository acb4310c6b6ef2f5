"""Chooses how a worker steps its envs: native vector envs, threads, or one env after another."""

from __future__ import annotations

from contextlib import closing

from paceline.envs.block import BlockSetup, EnvBlock
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.native import VectorEnvs
from paceline.envs.seeding import episode_seed
from paceline.envs.step_cost import EnvThreads, step_cost, threads_for
from paceline.envs.threaded import ThreadedEnvs

__all__ = ["EnvThreads", "make_block", "threads_for", "wait_s"]

TRIAL_ENV = 2**31 - 1
"""Env index of the trial. No env of a run has this index, so the trial repeats none of the run's episodes."""


def make_block(setup: BlockSetup, threads: EnvThreads = 1) -> EnvBlock:
    """Make the envs of a worker's groups, with the env's own vector implementation where that is faster.

    Args:
        setup: The envs.
        threads: Number of envs to step at the same time; `auto` measures a temporary env, and takes all if it waits.
    """
    if setup.recipe.use_native(setup.group_size):
        return VectorEnvs(setup)
    waits = wait_s(setup.recipe, seed=setup.seed) if threads == "auto" and setup.n > 1 else 0.0
    threads = threads_for(setup.n, waits, threads)
    return SingleEnvs(setup) if threads == 1 else ThreadedEnvs(setup, threads)


def wait_s(recipe: EnvRecipe, *, seed: int) -> float:
    """Make a temporary env and measure how many seconds of a step it waits; 0 if a step mostly computes.

    An env that fails in the trial counts as computing: the run's own envs will raise the error with their index.

    Args:
        recipe: How to make the env.
        seed: The run's seed.
    """
    try:
        with closing(recipe.make()) as env:
            return step_cost(env, seed=episode_seed(seed, TRIAL_ENV, 0)).wait_s
    except Exception:
        return 0.0

"""Chooses how a worker steps its envs: native vector envs, threads, or one env after another."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import EnvBlock
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.native import VectorEnvs
from paceline.envs.seeding import episode_seed
from paceline.envs.step_cost import EnvThreads, step_cost, threads_for
from paceline.envs.threaded import ThreadedEnvs
from paceline.memory.worker_status import StatusLine
from paceline.spec import EnvSpec

__all__ = ["EnvThreads", "make_block", "threads_for", "wait_s"]

TRIAL_ENV = 2**31 - 1
"""Env index of the trial. No env of a run has this index, so the trial repeats none of the run's episodes."""


def make_block(
    recipe: EnvRecipe,
    spec: EnvSpec,
    *,
    seed: int,
    first_group: int,
    groups: int,
    group_size: int,
    episode: NDArray[np.int64],
    threads: EnvThreads = 1,
    line: StatusLine = None,
    place: int | None = None,
) -> EnvBlock:
    """Make the envs of a worker's groups, with the env's own vector implementation where that is faster.

    Args:
        recipe: How to make an env.
        spec: Spec that `recipe.probe()` returned.
        seed: The run's seed.
        first_group: The first group of the block.
        groups: Number of groups.
        group_size: Envs per group.
        episode: [groups * group_size] episode number of each env; the block writes it.
        threads: Number of envs to step at the same time; `auto` measures a temporary env, and takes all if it waits.
        line: The worker's status line in shared memory; the block writes the index of the env that is being stepped.
        place: Number that chooses the core of the env threads, if there are any: see `ThreadedEnvs`.
    """
    if recipe.use_native(group_size):
        return VectorEnvs(
            recipe,
            spec,
            seed=seed,
            first_group=first_group,
            groups=groups,
            group_size=group_size,
            episode=episode,
            line=line,
        )
    first_env, n = first_group * group_size, groups * group_size
    common: dict[str, Any] = {"seed": seed, "first_env": first_env, "n": n, "episode": episode, "line": line}
    waits = wait_s(recipe, spec, seed=seed) if threads == "auto" and n > 1 else 0.0
    threads = threads_for(n, waits, threads)
    if threads == 1:
        return SingleEnvs(recipe, spec, **common)
    return ThreadedEnvs(recipe, spec, threads=threads, place=place, **common)


def wait_s(recipe: EnvRecipe, _spec: EnvSpec, *, seed: int) -> float:
    """Make a temporary env and measure how many seconds of a step it waits; 0 if a step mostly computes.

    An env that fails in the trial counts as computing: the run's own envs will raise the error with their index.

    Args:
        recipe: How to make the env.
        _spec: Unused.
        seed: The run's seed.
    """
    try:
        with closing(recipe.make()) as env:
            return step_cost(env, seed=episode_seed(seed, TRIAL_ENV, 0)).wait_s
    except Exception:
        return 0.0

"""Chooses how a worker steps its envs: native vector envs, threads, or one env after another."""

from __future__ import annotations

from time import perf_counter, thread_time
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from paceline.envs.block import EnvBlock
from paceline.envs.group import SingleEnvs
from paceline.envs.make import EnvRecipe
from paceline.envs.native import VectorEnvs
from paceline.envs.threaded import ThreadedEnvs
from paceline.measure.clock import waits_so_far
from paceline.memory.rows import Row
from paceline.memory.worker_status import StatusLine
from paceline.spec import EnvSpec

EnvThreads: TypeAlias = int | Literal["auto"]

MOST_THREADS = 64
"""Most threads that `auto` uses in one worker."""
WAITING = 0.5
"""A step waits rather than computes if its CPU time is below this fraction of its wall time."""
SHORTEST_WAIT_S = 2e-4
"""Handing a step to a thread costs 20 to 50 microseconds: shorter waits bring little."""
TRIAL_ENV = 2**31 - 1
"""The trial's env index, which no env of a run has: its episodes are its own."""
TRIAL_STEPS = 8
TRIAL_S = 1.0


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
    """Make the envs of a worker's groups, by the env's own vector implementation where that pays.

    Args:
        recipe: How to make an env.
        spec: What `recipe.probe()` found.
        seed: The run's.
        first_group: The first group of the block.
        groups: How many.
        group_size: Envs per group.
        episode: [groups * group_size] the block keeps the episode numbers here.
        threads: How many envs may be in `step` at once; `auto` tries one env and takes all of them if it waits.
        line: The worker's line of shared memory: the block notes there which env is at work.
        place: Where there are threads, which core they begin on: see `ThreadedEnvs`.
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
    if threads == "auto":
        threads = threads_for(n, 0.0 if n == 1 else wait_s(recipe, spec, seed=seed))
    if min(threads, n) == 1:
        return SingleEnvs(recipe, spec, **common)
    return ThreadedEnvs(recipe, spec, threads=threads, place=place, **common)


def threads_for(n: int, wait_s: float) -> int:
    """How many of n single envs to step at once, whose steps mostly wait, and for so long; or for 0 do not."""
    return min(MOST_THREADS, n) if wait_s else 1


def wait_s(recipe: EnvRecipe, spec: EnvSpec, *, seed: int) -> float:
    """How long a step of this env waits, if that is most of it, otherwise 0.

    Makes an env of its own and takes a few steps, for a second at most. An env that fails here says nothing: the run's
    own envs will, under their names.
    """
    block = None
    try:
        block = SingleEnvs(recipe, spec, seed=seed, first_env=TRIAL_ENV, n=1, episode=np.zeros(1, np.int64))
        row = Row.blank(spec, 1)
        block.reset(row)
        block.step(_legal(spec, row), row, row)  # the first step may load things
        began, cpu_began, waits_began, steps = perf_counter(), thread_time(), waits_so_far(), 0
        while steps < TRIAL_STEPS and perf_counter() - began < TRIAL_S:
            block.step(_legal(spec, row), row, row)
            steps += 1
        wall_s, cpu_s = perf_counter() - began, thread_time() - cpu_began
        # Time off the CPU is the env's own only if it gave the CPU up itself; otherwise somebody took it.
        gave_up = waits_so_far() - waits_began >= steps
        waits = gave_up and cpu_s < WAITING * wall_s and wall_s - cpu_s > steps * SHORTEST_WAIT_S
        return (wall_s - cpu_s) / steps if waits else 0.0
    except Exception:
        return 0.0
    finally:
        if block is not None:
            block.close()


def _legal(spec: EnvSpec, row: Row) -> NDArray[np.generic]:
    """Some action that the env allows, in stored form."""
    action = np.zeros((1, *spec.action.shape), spec.action.dtype)
    if row.mask is not None:
        parts = np.split(row.mask[0], np.cumsum(spec.action.nvec)[:-1])
        action.reshape(-1)[:] = [int(part.argmax()) for part in parts]
    return action

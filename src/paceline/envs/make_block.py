"""Chooses how a worker steps its envs: native vector envs, threads, or one env after another."""

from __future__ import annotations

from paceline.envs.block import BlockSetup, EnvBlock
from paceline.envs.group import SingleEnvs
from paceline.envs.native import VectorEnvs
from paceline.envs.threaded import ThreadedEnvs


def make_block(setup: BlockSetup, threads: int = 1) -> EnvBlock:
    """Make the envs of a worker's groups, with the env's own vector implementation where that is faster.

    Args:
        setup: The envs.
        threads: Most envs to step at the same time.
    """
    if setup.recipe.use_native(setup.group_size):
        return VectorEnvs(setup)
    return SingleEnvs(setup) if min(threads, setup.n) == 1 else ThreadedEnvs(setup, threads)

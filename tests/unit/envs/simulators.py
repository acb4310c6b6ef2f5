"""Runs of the simulator env (tests/simulator.py) in env blocks, for tests of extras and reward shaping."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.envs.block import EnvBlock
from paceline.memory.rows import Row
from paceline.spec import EnvSpec

N, ROWS = 6, 40


def actions(seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 3, (ROWS, N))


def run(envs: EnvBlock, spec: EnvSpec) -> list[Row]:
    rows = [Row.blank(spec, N) for _ in range(ROWS + 1)]
    envs.reset(rows[0])
    for action, row, after in zip(actions(), rows, rows[1:], strict=False):
        envs.step(action, row, after)
    return rows

"""Milliseconds of one shard's forward and backward, eager and with `--compile`.

Run alone on the machine, with one thread; it takes a few minutes:

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 python benchmarks/compiled.py
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.nets.compiled import CompiledForward
from paceline.nets.flat import FlatParameters, size_of
from paceline.nets.policy import Forward, build_policy, forward_pullback
from paceline.spec import EnvSpec

PIXELS = spaces.Box(0, 255, (84, 84, 4), np.uint8)
VECTOR = spaces.Box(-1, 1, (17,), np.float32)
ROUNDS = 15


class Normed(nn.Module):
    """Two dense layers of 256, each followed by LayerNorm and SiLU."""

    def __init__(self, observation_space: spaces.Box, action_space: spaces.Discrete, param_size: int) -> None:
        super().__init__()
        del action_space
        wide: list[nn.Module] = [nn.Linear(observation_space.shape[0], 256), nn.LayerNorm(256), nn.SiLU()]
        self.body = nn.Sequential(*wide, nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU())
        self.policy, self.value = nn.Linear(256, param_size), nn.Linear(256, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Both heads on one trunk."""
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


def measure(name: str, policy: Any, space: spaces.Box, rows: int) -> None:
    """Time both in turns, so that a noisy machine hits both; print medians."""
    spec = EnvSpec.of(space, spaces.Discrete(6))
    module = build_policy(policy, spec)
    flat = FlatParameters(module, torch.zeros(size_of(module)))
    obs = torch.from_numpy(np.stack([space.sample() for _ in range(rows)]))
    d_params, d_value = torch.randn(rows, 6), torch.randn(rows)
    began = perf_counter()
    forwards: dict[str, Forward] = {"compiled": CompiledForward(module, spec, rows)}
    compile_s = perf_counter() - began
    forwards["eager"] = partial(forward_pullback, module)

    def seconds(which: str) -> float:
        began = perf_counter()
        flat.flat_grad.zero_()
        forwards[which](obs)[2](d_params, d_value)
        return perf_counter() - began

    seconds("eager")
    times = np.array([[seconds(which) for which in forwards] for _ in range(ROUNDS if rows < 512 else 10 * ROUNDS)])
    compiled, eager = np.median(times, 0)
    print(
        f"{name:28s} {rows:4d} rows: eager {eager * 1e3:7.2f} ms, compiled {compiled * 1e3:7.2f} ms "
        f"({eager / compiled:.2f}x); compiling took {compile_s:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure("nature_cnn", "nature_cnn", PIXELS, 128)
    measure("nature_cnn", "nature_cnn", PIXELS, 256)
    measure("impala_cnn", "impala_cnn", PIXELS, 64)
    measure("256x256, LayerNorm, SiLU", Normed, VECTOR, 512)

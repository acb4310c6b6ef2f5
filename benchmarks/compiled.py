"""One shard's forward and backward, eager and with `--compile`, on one thread.

    make bench-compile

Both take turns; the compiler's own time is of a cache that may know the network already.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import results
import torch
from gymnasium import spaces
from torch import Tensor, nn

from paceline.nets.compiled import CompiledForward
from paceline.nets.flat import FlatParameters, size_of
from paceline.nets.policy import Forward, build_policy, forward_pullback
from paceline.spec import EnvSpec

PIXELS = spaces.Box(0, 255, (84, 84, 4), np.uint8)
VECTOR = spaces.Box(-1, 1, (17,), np.float32)


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


@dataclass(frozen=True, slots=True)
class Case:
    """A network and a shard."""

    title: str
    policy: Any
    space: spaces.Box
    rows: int
    repeats: int
    """Gradients of a turn."""


CASES = {
    "nature-128": Case("nature_cnn", "nature_cnn", PIXELS, 128, 1),
    "nature-256": Case("nature_cnn", "nature_cnn", PIXELS, 256, 1),
    "impala-64": Case("impala_cnn", "impala_cnn", PIXELS, 64, 1),
    "normed-512": Case("256x256 with LayerNorm and SiLU", Normed, VECTOR, 512, 10),
}


def sides(case: Case) -> tuple[dict[str, Callable[[], float]], float]:
    """Milliseconds of a gradient by either way, and the seconds that compiling took."""
    spec = EnvSpec.of(case.space, spaces.Discrete(6))
    module = build_policy(case.policy, spec)
    flat = FlatParameters(module, torch.zeros(size_of(module)))
    obs = torch.from_numpy(np.stack([case.space.sample() for _ in range(case.rows)]))
    d_params, d_value = torch.randn(case.rows, 6), torch.randn(case.rows)
    began = perf_counter()
    compiled = CompiledForward(module, spec, case.rows)
    compile_s = perf_counter() - began

    def milliseconds(forward: Forward) -> float:
        began = perf_counter()
        for _ in range(case.repeats):
            flat.flat_grad.zero_()
            forward(obs)[2](d_params, d_value)
        return (perf_counter() - began) * 1e3 / case.repeats

    both: dict[str, Forward] = {"eager": partial(forward_pullback, module), "compiled": compiled}
    for forward in both.values():
        milliseconds(forward)  # loads kernels, touches every page
    return {name: partial(milliseconds, forward) for name, forward in both.items()}, compile_s


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    before = results.Calm.now()
    found: dict[str, dict[str, Any]] = {}
    rows = []
    for name in ["normed-512"] if args.quick else CASES:
        case = CASES[name]
        updates, compile_s = sides(case)
        times = results.in_turns(updates, 2 if args.quick else args.rounds)
        found[name] = {"ms": times, "compile_s": compile_s}
        speed = results.ratio(times["eager"], times["compiled"])
        cells = [f"{results.median_spread(times[side])[0]:.2f}" for side in ("eager", "compiled")]
        rows.append([case.title, str(case.rows), *cells, results.shown(*speed), f"{compile_s:.0f}"])
    columns = ["network", "rows", "eager, ms", "compiled, ms", "eager / compiled", "compiling, s"]
    body = f"Forward and backward of a shard on one thread:\n\n{results.table(columns, rows)}"
    machine = results.conditions(before)
    results.publish("compile", "Eager and compiled gradients", body, {"cases": found}, machine, keep=not args.quick)


if __name__ == "__main__":
    main()

"""When is IMPALA or `--pipeline` faster than PPO? Training modes on envs that are slow or take uneven time.

    make bench-modes

Every mode trains in a process of its own, which is stopped during the windows of the others.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.harness import results
from benchmarks.harness.contestants import Contestant
from benchmarks.harness.settings import CARTPOLE_PPO

SLOW = {"slow_env": 5, "run_seed": 0}
EIGHT_WORKERS = {"num_workers": 8, "group_size": 4, "env_threads": 1, "n_epochs": 1}
"""8 workers step 4 envs each, one after another, so that one slow env delays a barrier most. One epoch in all modes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One env and the modes that train on it; ratios are against the first mode."""

    title: str
    env_kwargs: dict[str, Any]
    sides: dict[str, dict[str, Any]]
    targets: dict[str, float]
    common: dict[str, Any] = field(default_factory=dict)
    window_s: float = 4.0


PPO: dict[str, Any] = {"algo": "ppo", "batch_size": 1024, "learning_rate": 3e-4}
PIPELINE, IMPALA = {**PPO, "pipeline": True}, {"algo": "impala"}
CASES = {
    "slow-cpu": Case(
        title="one env in 32 takes 10 times as long, steps burn 1 ms",
        env_kwargs={"cpu_ms": 1.0, **SLOW},
        sides={"ppo": PPO, "impala": IMPALA},
        targets={"impala": 1.3},
        common={**EIGHT_WORKERS, "n_steps": 32},
        window_s=8.0,
    ),
    "slow-sleep": Case(
        title="one env in 32 takes 10 times as long, steps sleep 2 ms",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 2.0, **SLOW},
        sides={"ppo": PPO, "impala": IMPALA},
        targets={"impala": 2.0},
        common={**EIGHT_WORKERS, "n_steps": 32},
        window_s=8.0,
    ),
    "jitter": Case(
        title="5 % of the steps take 20 times as long, steps sleep 1 ms, n_steps 16",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 1.0, "jitter": 0.05},
        sides={"ppo": PPO, "impala": IMPALA},
        targets={"impala": 1.3},
        common={**EIGHT_WORKERS, "n_steps": 16},
    ),
    "cpu": Case(
        title="CPU-bound: steps burn 0.2 ms",
        env_kwargs={"cpu_ms": 0.2},
        sides={"ppo": PPO, "pipeline": PIPELINE},
        targets={"pipeline": 0.95},
        common={"num_workers": 2, "n_steps": 128, "n_epochs": 4},
    ),
    "sleep-learn": Case(
        title="steps sleep 1 ms, updates are long (16 epochs)",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 1.0},
        sides={"ppo": PPO, "pipeline": PIPELINE},
        targets={"pipeline": 1.3},
        common={"num_workers": 2, "n_steps": 128, "n_epochs": 16},
    ),
}


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    before = results.MachineLoad.now()
    rows, found = [], {}
    for name in args.cases:
        case = CASES[name]
        found[name], learning = measure(case, 1 if args.quick else args.rounds, 0.2 if args.quick else case.window_s)
        base = next(iter(case.sides))
        for side, rates in found[name].items():
            target = case.targets.get(side)
            value, spread = results.ratio(rates, found[name][base])
            rows.append(
                [
                    case.title if side == base else "",
                    side,
                    f"{results.median_spread(rates)[0]:,.0f}",
                    results.format_ratio(value, spread),
                    "" if target is None else f"{target:g} ({'met' if value >= target else 'missed'})",
                    f"{learning[side]:.0%}",
                ]
            )
    header = ["", "mode", "steps/s", "times the first", "target", "share of wall time in updates"]
    body = f"`paceline/Busy-v0`, 32 envs, MLP 64x64:\n\n{results.table(header, rows)}"
    machine = results.conditions(before)
    keep = not args.quick and len(args.cases) == len(CASES)
    results.publish("modes", "Training modes on slow and uneven envs", body, {"steps_per_s": found}, machine, keep=keep)


def measure(case: Case, rounds: int, window_s: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Steps per second of every mode in alternating windows, and the share of wall time that it spends in updates."""
    learning: dict[str, list[float]] = {side: [] for side in case.sides}
    with ExitStack() as stack:
        alive = {}
        for side, own in case.sides.items():
            alive[side] = stack.enter_context(_training(side, case, own))
            alive[side].read_reply()
            alive[side].window(0.0)  # warm-up of one iteration

        def rate(side: str) -> float:
            window = alive[side].window(window_s)
            learning[side].append(window.reply["learn_s"] / window.seconds)
            return window.rate

        found = results.interleave({side: partial(rate, side) for side in alive}, rounds)
    return found, {side: results.median_spread(shares)[0] for side, shares in learning.items()}


def _training(side: str, case: Case, own: dict[str, Any]) -> Contestant:
    ours = {"env_kwargs": case.env_kwargs, **case.common, **own}
    same = {name: CARTPOLE_PPO[name] for name in ("n_envs", "seed", "hidden_sizes")}
    settings = {"env": "paceline/Busy-v0", **same, "shared": [], "ours": ours}
    return Contestant("benchmarks.harness.windows_paceline", settings, log=f"modes-{side}.log")


if __name__ == "__main__":
    main()

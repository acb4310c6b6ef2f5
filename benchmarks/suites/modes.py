"""Which mode for which machine: barrier PPO, its pipeline and the asynchronous modes where envs are slow or uneven.

    make bench-modes

Every side trains in a process of its own and rests while the others have their windows.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import results
from contestants import Contestant
from sb3_ppo import SETTINGS

HERE = Path(__file__).parent
SLOW = {"slow_env": 5, "run_seed": 0}
CREW = {"num_workers": 8, "group_size": 4, "env_threads": 1, "n_epochs": 1}
"""8 workers x 4 envs, stepped one after another: what a barrier suffers from. One pass over each batch in all modes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One env, and the modes that are tried on it; the first is what the others are measured against."""

    title: str
    env_kwargs: dict[str, Any]
    sides: dict[str, dict[str, Any]]
    targets: dict[str, float]
    common: dict[str, Any] = field(default_factory=dict)
    window_s: float = 4.0


PPO, PIPELINE, IMPALA = {"algo": "ppo"}, {"algo": "ppo", "pipeline": True}, {"algo": "impala"}
CASES = {
    "slow-cpu": Case(
        title="one env in 32 takes 10 times as long, steps burn 1 ms",
        env_kwargs={"cpu_ms": 1.0, **SLOW},
        sides={"ppo": PPO, "impala": IMPALA},
        targets={"impala": 1.3},
        common={**CREW, "n_steps": 32},
        window_s=8.0,
    ),
    "slow-sleep": Case(
        title="one env in 32 takes 10 times as long, steps sleep 2 ms",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 2.0, **SLOW},
        sides={"ppo": PPO, "impala": IMPALA},
        targets={"impala": 2.0},
        common={**CREW, "n_steps": 32},
        window_s=8.0,
    ),
    "jitter": Case(
        title="5 % of the steps take 20 times as long, steps sleep 1 ms, n_steps 16",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 1.0, "jitter": 0.05},
        sides={"ppo": PPO, "impala": IMPALA},
        targets={"impala": 1.3},
        common={**CREW, "n_steps": 16},
    ),
    "cpu": Case(
        title="CPU-bound: steps burn 0.2 ms",
        env_kwargs={"cpu_ms": 0.2},
        sides={"ppo": PPO, "pipeline": PIPELINE},
        targets={"pipeline": 0.95},
        common={"num_workers": 2, "n_steps": 128},
    ),
    "sleep-learn": Case(
        title="steps sleep 1 ms, learning is long (16 epochs)",
        env_kwargs={"cpu_ms": 0.0, "sleep_ms": 1.0},
        sides={"ppo": PPO, "pipeline": PIPELINE},
        targets={"pipeline": 1.3},
        common={"num_workers": 2, "n_steps": 128, "n_epochs": 16},
    ),
}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    before = results.Calm.now()
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
                    results.shown(value, spread),
                    "" if target is None else f"{target:g} ({'met' if value >= target else 'missed'})",
                    f"{learning[side]:.0%}",
                ]
            )
    header = ["", "mode", "steps/s", "times the first", "target", "learning's share of the wall time"]
    body = f"`paceline/Busy-v0`, 32 envs, MLP 64x64:\n\n{results.table(header, rows)}"
    machine = results.conditions(before)
    keep = not args.quick and len(args.cases) == len(CASES)
    results.publish("modes", "Which mode for which machine", body, {"steps_per_s": found}, machine, keep=keep)


def measure(case: Case, rounds: int, window_s: float) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Steps per second of every side, in turns; and the share of the time that each spends on learning."""
    learning: dict[str, list[float]] = {side: [] for side in case.sides}
    with ExitStack() as stack:
        alive = {}
        for side, own in case.sides.items():
            alive[side] = stack.enter_context(_training(side, case, own))
            alive[side].answer()
            alive[side].window(0.0)  # one iteration: loads kernels, touches every page

        def rate(side: str) -> float:
            window = alive[side].window(window_s)
            learning[side].append(window.said["learn_s"] / window.seconds)
            return window.rate

        found = results.in_turns({side: partial(rate, side) for side in alive}, rounds)
    return found, {side: results.median_spread(shares)[0] for side, shares in learning.items()}


def _training(side: str, case: Case, own: dict[str, Any]) -> Contestant:
    ours = {"env_kwargs": case.env_kwargs, **case.common, **own}
    same = {name: SETTINGS[name] for name in ("n_envs", "seed", "hidden_sizes")}
    settings = {"env": "paceline/Busy-v0", **same, "shared": [], "ours": ours}
    command = [sys.executable, str(HERE / "windows_paceline.py"), json.dumps(settings)]
    return Contestant(command, log=results.LOGS / f"modes-{side}.log", path=[HERE])


if __name__ == "__main__":
    main()

"""Did a change make training faster or slower? Two checkouts of Paceline in alternating windows.

    make bench-two OLD=../before NEW=.
    python -m benchmarks.suites.two_checkouts OLD NEW --workloads cartpole,dqn --rounds 8 --window-s 4

Each checkout trains in a process of its own, with the same Python and with `CHECKOUT/src` first on the import path.
Windows alternate old, new, new, old, so that a drifting machine favours neither; a process is stopped during the
windows of the other. Reported is the median over rounds of new / old with half the interquartile range, and whether
the difference is larger than the noise (`difference` in harness/guard.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import results
from benchmarks.harness.contestants import Contestant, ContestantFailed
from benchmarks.harness.guard import difference
from benchmarks.harness.settings import SPEED_PPO

PPO: dict[str, Any] = {"algo": "ppo", "n_envs": 32, "num_workers": 2, **SPEED_PPO}
BUSY = "paceline/Busy-v0"
WORKLOADS: dict[str, dict[str, Any]] = {
    "cartpole": {**PPO, "env": "CartPole-v1"},
    "busy": {**PPO, "env": BUSY, "env_kwargs": {"cpu_ms": 1.0}, "n_steps": 16},
    "sleep": {**PPO, "env": BUSY, "env_kwargs": {"cpu_ms": 0.0, "sleep_ms": 2.0}, "n_steps": 32},
    "atari": {
        **PPO, "env": "benchmarks.harness.frames_env:Frames", "policy": "nature_cnn", "n_envs": 8, "n_steps": 32,
    },
    "dqn": {
        "algo": "dqn", "env": "CartPole-v1", "n_envs": 32, "num_workers": 2, "n_steps": 16, "samples_per_insert": 8,
        "multi_step": 1, "target_update": 1000, "lr_schedule": "constant", "exploration_fraction": 0.2,
    },
    "cyber": {
        **PPO, "env": "paceline/NetworkDefence-v0", "n_envs": 100, "group_size": 50, "n_steps": 50, "batch_size": 1000,
    },
}  # fmt: skip
"""Settings of the agent by workload. Iterations are short, so that a window contains several."""


def measure(name: str, checkouts: dict[str, Path], rounds: int, window_s: float) -> dict[str, Any]:
    """Steps/s of each checkout by round on one workload, their ratio and the verdict.

    Raises:
        SystemExit: A checkout cannot run the workload, or the child imports `paceline` from elsewhere.
    """
    with ExitStack() as stack:
        cells = {}
        for side, checkout in checkouts.items():
            log = f"two_checkouts_{name}_{side}.log"
            one = stack.enter_context(
                Contestant("benchmarks.harness.two_checkouts_child", WORKLOADS[name], log=log, source=checkout / "src")
            )
            try:
                source = Path(one.read_reply()["source"])
                one.window(window_s)  # warm-up: the first iterations are slower
            except ContestantFailed as error:
                raise SystemExit(f"{side} checkout, workload {name}: {error}") from error
            if not source.is_relative_to(checkout):
                raise SystemExit(
                    f"{side} checkout: the child imported {source}, which is not in {checkout}. "
                    "Is there a folder src/paceline in it?"
                )
            cells[side] = partial(_rate, one, window_s)
        rates = results.interleave(cells, rounds)
    ratios = [new / old for new, old in zip(rates["new"], rates["old"], strict=True)]
    median, spread = results.median_spread(ratios)
    medians = {side: results.median_spread(each)[0] for side, each in rates.items()}
    verdict = difference(ratios, median, spread)
    return {**medians, "ratio": median, "spread": spread, "verdict": verdict, "ratios": ratios, "steps_per_s": rates}


def _rate(one: Contestant, window_s: float) -> float:
    return one.window(window_s).rate


def main() -> int:
    """Measure the workloads one after another, print a table, and write JSON if `--json` names a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("new", type=Path, help="folder of the new checkout")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated names (default: all)")
    parser.add_argument("--rounds", type=int, default=8, help="windows of each checkout, an even number")
    parser.add_argument("--window-s", type=float, default=4.0, help="seconds of a window")
    parser.add_argument("--json", type=Path, help="file to write the result to")
    flags = parser.parse_args()
    names = flags.workloads.split(",")
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"--workloads: must be among {', '.join(WORKLOADS)} (got {', '.join(unknown)})")
    checkouts = {"old": flags.old.resolve(), "new": flags.new.resolve()}
    before = results.MachineLoad.now()
    found = {name: measure(name, checkouts, flags.rounds, flags.window_s) for name in names}
    machine = results.conditions(before)
    rows = [
        [name, f"{it['old']:,.0f}", f"{it['new']:,.0f}", f"{it['ratio']:.3f} ± {it['spread']:.3f}", it["verdict"]]
        for name, it in found.items()
    ]
    print(results.table(["workload", "old, steps/s", "new, steps/s", "new / old", "the new one is"], rows))
    print(results.describe_load(machine))
    if flags.json is not None:
        flags.json.write_text(json.dumps({"workloads": found, "machine": machine}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

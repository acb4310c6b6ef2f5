"""Two checkouts of Paceline in turns: is the new one faster, slower, or neither?

    make bench-two OLD=../before NEW=.
    python benchmarks/two_checkouts.py OLD NEW --workloads cartpole,dqn --rounds 8 --window-s 4

Each checkout trains in a process of its own, with the same Python and `PYTHONPATH=<checkout>/src`. Windows alternate
old, new, new, old, so that a machine that drifts favours neither; between its windows a process is stopped.
Reported is the median over rounds of new / old, with half the range between the quartiles.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import results
from contestants import Contestant
from guard import difference

HERE = Path(__file__).parent
PPO: dict[str, Any] = {"algo": "ppo", "n_envs": 32, "num_workers": 2}
BUSY = "paceline/Busy-v0"
WORKLOADS: dict[str, dict[str, Any]] = {
    "cartpole": {**PPO, "env": "CartPole-v1"},
    "busy": {**PPO, "env": BUSY, "env_kwargs": {"cpu_ms": 1.0}, "n_steps": 16},
    "sleep": {**PPO, "env": BUSY, "env_kwargs": {"cpu_ms": 0.0, "sleep_ms": 2.0}, "n_steps": 32},
    "atari": {**PPO, "env": "two_checkouts_child:Frames", "policy": "nature_cnn", "n_envs": 8, "n_steps": 32},
    "dqn": {"algo": "dqn", "env": "CartPole-v1", "n_envs": 32, "num_workers": 2, "n_steps": 16},
    "cyber": {**PPO, "env": "paceline/NetworkDefence-v0", "n_envs": 100, "group_size": 50, "n_steps": 50},
}


def measure(name: str, checkouts: dict[str, Path], rounds: int, window_s: float) -> dict[str, Any]:
    """Steps/s of each checkout by round, their ratio and the verdict."""
    with ExitStack() as stack:
        cells = {}
        for side, checkout in checkouts.items():
            command = [sys.executable, str(HERE / "two_checkouts_child.py"), json.dumps(WORKLOADS[name])]
            log = results.LOGS / f"two_checkouts_{name}_{side}.log"
            one = stack.enter_context(Contestant(command, log=log, path=[checkout / "src", HERE]))
            source = Path(one.answer()["source"])
            if not source.is_relative_to(checkout):
                raise SystemExit(
                    f"{side}: imported {source}, which is not in {checkout}. Is there a src/paceline in it?"
                )
            one.window(window_s)  # the first iterations are slower
            cells[side] = lambda one=one: one.window(window_s).rate
        rates = results.in_turns(cells, rounds)
    ratios = [new / old for new, old in zip(rates["new"], rates["old"], strict=True)]
    median, spread = results.median_spread(ratios)
    medians = {side: results.median_spread(each)[0] for side, each in rates.items()}
    verdict = difference(ratios, median, spread)
    return {**medians, "ratio": median, "spread": spread, "verdict": verdict, "ratios": ratios, "steps_per_s": rates}


def main() -> int:
    """Measure the workloads one after another, print a table, write JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of the old checkout")
    parser.add_argument("new", type=Path, help="folder of the new checkout")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="some of the default, with commas")
    parser.add_argument("--rounds", type=int, default=8, help="windows of each checkout, an even number")
    parser.add_argument("--window-s", type=float, default=4.0, help="seconds of a window")
    parser.add_argument("--json", type=Path, help="file to write the result to")
    flags = parser.parse_args()
    names = flags.workloads.split(",")
    if unknown := [name for name in names if name not in WORKLOADS]:
        parser.error(f"--workloads: must be of {', '.join(WORKLOADS)} (got {', '.join(unknown)})")
    checkouts = {"old": flags.old.resolve(), "new": flags.new.resolve()}
    before = results.Calm.now()
    found = {name: measure(name, checkouts, flags.rounds, flags.window_s) for name in names}
    machine = results.conditions(before)
    rows = [
        [name, f"{it['old']:,.0f}", f"{it['new']:,.0f}", f"{it['ratio']:.3f} ± {it['spread']:.3f}", it["verdict"]]
        for name, it in found.items()
    ]
    print(results.table(["workload", "old, steps/s", "new, steps/s", "new / old", "verdict"], rows))
    print(results.others(machine))
    if flags.json is not None:
        flags.json.write_text(json.dumps({"workloads": found, "machine": machine}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

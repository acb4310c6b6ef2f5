"""Is `make_vec` faster than other vector envs? Random actions without a policy, in alternating windows of one run.

    make bench-vector
    python -m benchmarks.suites.vector --workloads cartpole --envs 32 --rounds 1 --window-s 1

Each vector env runs in a process of its own, which is stopped during the windows of the others. Bare loops
(peers/bare_loops.py) measure the limit of the cores.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import peer_venvs, results, vector_report
from benchmarks.harness.contestants import Contestant, ContestantFailed
from benchmarks.harness.paths import SOURCE
from benchmarks.harness.vector_report import BARE, CONTENDERS, IN_STEP, LIMITS, WORKLOADS

VENVS = {"sb3-subproc": "sb3", "pufferlib-mp": "pufferlib"}
"""Virtual environments of the contenders that do not run in the one of this process."""


def main() -> None:
    """Build the virtual environments, measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--window-s", type=float, default=3.0)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--envs", nargs="+", type=int, default=[8, 32])
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.window_s, args.envs = 1, 0.3, [8]
    missing = {}
    for name in [name for name in args.contenders if name in VENVS]:
        if reason := peer_venvs.build(VENVS[name]):
            missing[name] = reason
            print(f"{name}: cannot be installed: {reason}", flush=True)
    contenders = [name for name in args.contenders if name not in missing]
    before = results.MachineLoad.now()
    lines = [
        measure(workload, n, contenders, args.rounds, args.window_s) for workload in args.workloads for n in args.envs
    ]
    result = {"lines": lines, "not_installed": missing, "rounds": args.rounds, "window_s": args.window_s}
    machine = results.conditions(before)
    body = vector_report.page(result, machine)
    folder = results.publish("vector", "Vector envs", body, result, machine, keep=not args.quick)
    vector_report.picture(result, folder / "vector.png")


def measure(workload: str, n_envs: int, contenders: list[str], rounds: int, window_s: float) -> dict[str, Any]:
    """Steps per second of all contenders on one workload, in alternating windows."""
    rates: dict[str, list[float]] = {}
    layouts: dict[str, str] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        alive: dict[str, Contestant] = {}
        for name in contenders:
            if name in (BARE, IN_STEP) and name not in LIMITS.get(workload, ()):
                continue
            contestant = stack.enter_context(_start(name, workload, n_envs))
            try:
                layouts[name] = contestant.read_reply()["layout"]
                contestant.window(min(0.5, window_s))  # warm-up: touches every page
            except ContestantFailed as error:
                failed[name] = str(error)
                print(f"{workload} {n_envs}: {name} failed: {error}", flush=True)
                continue
            alive[name], rates[name] = contestant, []
        for number in range(rounds):
            # Reverse the order every round, so that a drifting machine favours no contender.
            for name in list(alive)[:: -1 if number % 2 else 1]:
                rates[name].append(alive[name].window(window_s).rate)
        print(f"{workload} {n_envs}: " + ", ".join(f"{name} {max(rates[name]):,.0f}" for name in rates), flush=True)
    return {"workload": workload, "n_envs": n_envs, "rates": rates, "layouts": layouts, "failed": failed}


def _start(name: str, workload: str, n_envs: int) -> Contestant:
    venv = VENVS.get(name)
    python = peer_venvs.python_of(venv) if venv else sys.executable
    settings = {"contender": name, "workload": workload, "n_envs": n_envs}
    log = f"vector-{name}-{workload}-{n_envs}.log"
    return Contestant("benchmarks.peers.run_vector", settings, log=log, python=python, source=None if venv else SOURCE)


if __name__ == "__main__":
    main()

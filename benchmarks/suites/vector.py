"""`make_vec` against other vector envs, all in one run, in windows that take turns: random actions, no policy.

    make bench-vector
    python benchmarks/vector.py --workloads cartpole --envs 32 --rounds 1 --window-s 1

Each is at work in a process of its own, which is stopped while the others have their windows. The bare loops
(peers/bare_loops.py) show what the cores are worth.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import peer_venvs
import results
import vector_report
from contestants import Contestant, ContestantFailed
from vector_report import BARE, CONTENDERS, IN_STEP, LIMITS, WORKLOADS

HERE = Path(__file__).parent
OWN = [HERE / "peers", HERE, HERE.parent / "src"]
VENVS = {"sb3-subproc": "sb3", "pufferlib-mp": "pufferlib"}
"""Who needs an environment other than ours."""


def main() -> None:
    """Build, measure, report."""
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
    before = results.Calm.now()
    lines = [
        measure(workload, n, contenders, args.rounds, args.window_s) for workload in args.workloads for n in args.envs
    ]
    result = {"lines": lines, "not_installed": missing, "rounds": args.rounds, "window_s": args.window_s}
    machine = results.conditions(before)
    body = vector_report.page(result, machine)
    folder = results.publish("vector", "Vector envs", body, result, machine, keep=not args.quick)
    vector_report.picture(result, folder / "vector.png")


def measure(workload: str, n_envs: int, contenders: list[str], rounds: int, window_s: float) -> dict[str, Any]:
    """Steps per second of all on one workload, in turns."""
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
                layouts[name] = contestant.answer()["layout"]
                contestant.window(min(0.5, window_s))  # touches every page
            except ContestantFailed as error:
                failed[name] = str(error)
                print(f"{workload} {n_envs}: {name} failed: {error}", flush=True)
                continue
            alive[name], rates[name] = contestant, []
        for number in range(rounds):
            for name in list(alive)[:: -1 if number % 2 else 1]:  # there and back: a drifting machine favours nobody
                rates[name].append(alive[name].window(window_s).rate)
        print(f"{workload} {n_envs}: " + ", ".join(f"{name} {max(rates[name]):,.0f}" for name in rates), flush=True)
    return {"workload": workload, "n_envs": n_envs, "rates": rates, "layouts": layouts, "failed": failed}


def _start(name: str, workload: str, n_envs: int) -> Contestant:
    venv = VENVS.get(name)
    python = str(peer_venvs.python_of(venv)) if venv else sys.executable
    settings = json.dumps({"contender": name, "workload": workload, "n_envs": n_envs})
    log = results.LOGS / f"vector-{name}-{workload}-{n_envs}.log"
    path = OWN if name == "paceline" else OWN[:2]
    return Contestant([python, str(HERE / "peers" / "run_vector.py"), settings], log=log, path=path)


if __name__ == "__main__":
    main()

"""What does a worker cost? Proportional memory (PSS) by start method, and the time until eight workers run.

    make bench-workers

Every figure comes from a fresh process, because a fork server that has been started serves all later trainings. Memory
is the PSS of the whole process tree after two iterations of CartPole-v1, so that shared pages count once. `first` is
what one worker adds to sequential training, with the fork server's own pages; `further` is what each further worker
adds; `own` is the PSS of a single worker. Run it while no other process maps the same libraries, because that makes
PSS look smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil

from benchmarks.harness import results
from benchmarks.harness.paths import ROOT
from benchmarks.harness.settings import SPEED_PPO

FURTHER = 4
"""Number of workers of the training that is compared with a training of one worker."""
TARGETS_MB = {"forkserver": 90.0, "spawn": 220.0}
MANY, TARGET_S = 8, 4.0


def child(method: str, workers: int) -> None:
    """Run in the child: train for two iterations; print when the workers ran and the memory of the process tree."""
    # Imported here, because the parent measures a process that loads all of this.
    from paceline.config.train_config import TrainConfig
    from paceline.measure.machine import tree_memory_mb
    from paceline.train.build import build

    own = {"n_envs": 32, "num_workers": workers, "start_method": method, "n_epochs": 1, "quiet": True}
    config = TrainConfig.from_flat(env="CartPole-v1", **{**SPEED_PPO, **own})
    began = perf_counter()
    training = build(config)
    try:
        print(json.dumps({"build_s": perf_counter() - began}), flush=True)
        training.rollouts.reset()
        for _ in range(2):
            training.driver.iterate()
        workers_mb = [tree_memory_mb(psutil.Process(pid)) for pid in training.runtime.pids()]
        found = {"tree_mb": tree_memory_mb(), "worker_mb": max(workers_mb, default=0.0), "others": others_with_torch()}
        print(json.dumps(found), flush=True)
    finally:
        training.close()


def others_with_torch() -> int:
    """Number of visible processes outside this tree that map torch's library."""
    own = {os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))}
    found = 0
    for process in psutil.process_iter():
        try:
            if process.pid not in own and "libtorch_cpu" in Path(f"/proc/{process.pid}/maps").read_text():
                found += 1
        except OSError:
            continue
    return found


def measure(method: str, workers: int) -> dict[str, float]:
    """Start a child; returns its figures and the seconds from starting it until the workers ran."""
    began = perf_counter()
    found: dict[str, float] = {}
    command = [sys.executable, "-m", "benchmarks.suites.workers", "--child", method, str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        for line in process.stdout or ():
            reply: dict[str, Any] = json.loads(line)
            if "build_s" in reply:
                found["since_start_s"] = perf_counter() - began
            found |= reply
    if process.returncode or "tree_mb" not in found:
        raise SystemExit(f"{command}: ended with code {process.returncode}")
    return found


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; medians are reported")
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "WORKERS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], int(args.child[1]))
        return
    before = results.MachineLoad.now()
    memory_mb: dict[str, dict[str, list[float]]] = {
        method: {"further": [], "own": [], "first": []} for method in TARGETS_MB
    }
    up: dict[str, list[float]] = {"build_s": [], "since_start_s": []}
    others = 0.0
    for _ in range(args.rounds):
        alone = measure("forkserver", 0)
        for method in TARGETS_MB:
            one, several = measure(method, 1), measure(method, FURTHER)
            memory_mb[method]["further"].append((several["tree_mb"] - one["tree_mb"]) / (FURTHER - 1))
            memory_mb[method]["own"].append(one["worker_mb"])
            memory_mb[method]["first"].append(one["tree_mb"] - alone["tree_mb"])
            others = max(others, one["others"], several["others"])
        many = measure("forkserver", MANY)
        for name, values in up.items():
            values.append(many[name])
    report(memory_mb, up, int(others), results.conditions(before))


def report(
    memory_mb: dict[str, dict[str, list[float]]],
    up: dict[str, list[float]],
    others: int,
    machine: dict[str, Any],
) -> None:
    """Compute medians and publish."""
    rows = [
        [method, *(f"{results.median_spread(values)[0]:.0f}" for values in memory_mb[method].values()), f"{limit:.0f}"]
        for method, limit in TARGETS_MB.items()
    ]
    build_s, since_start_s = (results.median_spread(values)[0] for values in up.values())
    hidden = f" {others} other processes shared torch's pages, so these figures are too low." if others else ""
    body = (
        "MB of PSS that a worker adds on CartPole-v1 (32 envs, MLP 64x64), after two iterations.\n\n"
        + results.table(["start method", "each further", "own", "first, with the fork server", "target"], rows)
        + f"\n\n{hidden}\n\n{MANY} forkserver workers run {build_s:.2f} s after `build` was called, including the "
        f"start of the fork server (target {TARGET_S:g} s), and {since_start_s:.2f} s after the process was started, "
        "including its imports."
    ).replace("\n\n\n\n", "\n\n")
    result = {"memory_mb": memory_mb, "up_8": up, "others_with_torch": others}
    results.publish("workers", "Memory and start-up of a worker", body, result, machine)


if __name__ == "__main__":
    main()

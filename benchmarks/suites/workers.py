"""What a worker costs on CartPole-v1: proportional memory (PSS) by start method, and the time until eight are up.

    make bench-workers

Every figure comes from a fresh process, since a fork server once started serves all later trainings. Memory is that
of the whole process tree after two iterations, so that shared pages count once and every page that training
touches is there: `first` is what one worker adds to sequential training, the fork server's own pages included;
`further` is what each one after it adds. `own` is the PSS of the single worker itself. Other processes that map the
same libraries make PSS look smaller: run it alone.
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
import results

FURTHER = 4
"""Workers of the training that is compared with one of a single worker."""
TARGETS_MB = {"forkserver": 90.0, "spawn": 220.0}
MANY, TARGET_S = 8, 4.0


def child(method: str, workers: int) -> None:
    """Train for two iterations; says when the workers were up, and what the tree takes."""
    # Imported here: the parent times a process that loads all of this.
    from paceline.config.train_config import TrainConfig
    from paceline.measure.machine import tree_memory_mb
    from paceline.train.build import build

    config = TrainConfig.from_flat(
        env="CartPole-v1", n_envs=32, num_workers=workers, start_method=method, n_epochs=1, quiet=True
    )
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
    """Processes outside this tree that map torch's library, as far as can be seen."""
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
    """The child's numbers, and seconds from starting its process until the workers were up."""
    began = perf_counter()
    found: dict[str, float] = {}
    command = [sys.executable, __file__, "--child", method, str(workers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            answer: dict[str, Any] = json.loads(line)
            if "build_s" in answer:
                found["since_start_s"] = perf_counter() - began
            found |= answer
    if process.returncode or "tree_mb" not in found:
        raise SystemExit(f"{command}: ended with code {process.returncode}")
    return found


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; medians are reported")
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "WORKERS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], int(args.child[1]))
        return
    before = results.Calm.now()
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
    """Sum up and publish."""
    rows = [
        [method, *(f"{results.median_spread(values)[0]:.0f}" for values in memory_mb[method].values()), f"{limit:.0f}"]
        for method, limit in TARGETS_MB.items()
    ]
    build_s, since_start_s = (results.median_spread(values)[0] for values in up.values())
    hidden = f" {others} other processes shared torch's pages: too low." if others else ""
    body = (
        "MB of PSS that a worker adds on CartPole-v1 (32 envs, MLP 64x64), after two iterations.\n\n"
        + results.table(["start method", "each further", "own", "first, with the fork server", "target"], rows)
        + f"\n\n{hidden}\n\n{MANY} forkserver workers are up {build_s:.2f} s after the training began to be built, the "
        f"fork server's own start included (target {TARGET_S:g} s), and {since_start_s:.2f} s after the process was "
        "started, its imports included."
    ).replace("\n\n\n\n", "\n\n")
    result = {"memory_mb": memory_mb, "up_8": up, "others_with_torch": others}
    results.publish("workers", "What a worker costs", body, result, machine)


if __name__ == "__main__":
    main()

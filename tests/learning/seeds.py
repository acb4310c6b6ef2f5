"""Measure how many steps the learning targets need, seed by seed; the budgets in `configs/` come from here.

    make learning-seeds TARGETS=cartpole_impala SEEDS=24
    make learning-seeds TARGETS=cartpole_impala SEEDS=24 ARGS="--set learning_rate=8e-4 --set gamma=0.975"

Runs are made one after another and stop at their target, as the learning tests do. The exit code is 1 if a seed does
not reach its target within the budget.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

# As the command line and conftest.py do, before numpy and torch are loaded.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from tests.learning.settings import LEARNING, Target  # noqa: E402

from paceline.measure.record import Summary  # noqa: E402
from paceline.train.run import train  # noqa: E402


def attempt(target: Target, seed: int, folder: Path) -> Summary:
    """Train one seed until it reaches the target or its budget of steps is spent."""
    own = {"seed": seed, "stop_at_score": target.mean_return, "output_dir": folder}
    return train(target.config.merge(**own))


def reached(summary: Summary) -> bool:
    """Whether a run stopped because it reached its target."""
    return summary.stop_reason.endswith(" reached")


def describe(steps: Sequence[int | None], budget: int) -> str:
    """Median, 90th percentile and maximum of the steps needed, and the number of seeds that missed.

    Args:
        steps: Steps to the target, by seed; None for a seed that did not reach it.
        budget: Steps that a run may take.
    """
    needed = sorted(budget if count is None else count for count in steps)
    missed = sum(count is None for count in steps)
    ninth = needed[-(-9 * len(needed) // 10) - 1]
    return (
        f"{len(steps)} seeds: median {statistics.median(needed):,.0f}, 90th percentile {ninth:,}, "
        f"maximum {needed[-1]:,} of {budget:,} steps; {missed} missed"
    )


def main() -> int:
    """Train the seeds of each target named and print a table of steps to the target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", choices=LEARNING)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting")
    args = parser.parse_args()
    changes = dict(item.split("=", 1) for item in args.set)
    missed = False
    for name in args.targets:
        target = replace(LEARNING[name], config=LEARNING[name].config.merge(**changes))
        budget = target.config.run.total_timesteps or 0
        steps: list[int | None] = []
        sys.stdout.write(f"{name} {' '.join(args.set)}\n")
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            begun = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                summary = attempt(target, seed, Path(folder) / "run")
            if summary.stop_reason in ("SIGINT", "SIGTERM"):  # the run ends in order, and says nothing about its seed
                sys.stdout.write(f"  seed {seed:3}  interrupted by {summary.stop_reason}; no result\n")
                return 130
            steps.append(summary.steps if reached(summary) else None)
            end = "" if reached(summary) else f"  missed ({summary.stop_reason})"
            sys.stdout.write(f"  seed {seed:3}  {summary.steps:9,}  {time.perf_counter() - begun:5.1f} s{end}\n")
            sys.stdout.flush()
        sys.stdout.write(f"  {describe(steps, budget)}\n")
        missed |= None in steps
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

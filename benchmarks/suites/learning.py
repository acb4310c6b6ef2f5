"""Does Paceline learn as much per step as stable-baselines3? Learning curves on CartPole-v1, several seeds.

    make bench-learning

Both libraries train with the settings of the speed comparison. A curve is the mean return of the last 100 finished
episodes after each iteration, as each library reports it; the areas under the curves are compared. The runs of a seed
train at the same time, because their speed does not matter here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import peer_venvs, results
from benchmarks.harness.areas import Curve, area, bootstrap, common_range
from benchmarks.harness.contestants import Contestant
from benchmarks.harness.peer_table import PEERS, WORKLOADS
from paceline.insight.runs.intervals import METHOD, mean_interval

THEIRS = "stable-baselines3"
SIDES = {
    "paceline": "paceline-sequential",
    "paceline --pipeline": "paceline-pipeline",
    THEIRS: "sb3-dummy-1",
}
"""Keys in `PEERS`, each with one thread. The number of workers does not change results, so sequential Paceline stands
for all of them; `--pipeline` learns from batches that are one update old, and does change them."""
COLOURS = ("#D55E00", "#E69F00", "#0072B2")
TIMEOUT_S = 600.0


def learn(seed: int, steps: int) -> dict[str, Curve]:
    """Train all libraries at the same time with one seed; returns their curves. Blocks for minutes."""
    with ExitStack() as stack:
        running = {}
        for name, key in SIDES.items():
            peer = PEERS[key]
            task = {**WORKLOADS["cartpole"].task(peer, seed=seed), "curve_steps": steps}
            log = f"learning-{key}-{seed}.log"
            if peer.venv == peer_venvs.OURS:  # in the environment of this process
                contestant = Contestant(peer.module, task, log=log)
            else:
                contestant = Contestant(peer.module, task, log=log, python=peer_venvs.python_of(peer.venv), source=None)
            running[name] = stack.enter_context(contestant)
        return {name: contestant.read_reply(TIMEOUT_S)["curve"] for name, contestant in running.items()}


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=150_000)
    parser.add_argument(
        "--quick", action="store_true", help="only check that it runs: 2 seeds, 12,000 steps, no stored results"
    )
    args = parser.parse_args()
    for key in SIDES.values():
        if PEERS[key].venv != peer_venvs.OURS:
            peer_venvs.require(PEERS[key].venv)
    seeds, steps = (2, 12_000) if args.quick else (args.seeds, args.steps)
    before = results.MachineLoad.now()
    curves: dict[str, list[Curve]] = {name: [] for name in SIDES}
    for seed in range(args.first_seed, args.first_seed + seeds):
        for name, curve in learn(seed, steps).items():
            curves[name].append(curve)
            print(f"seed {seed}: {name} ends at {curve[-1][1]:.0f}", file=sys.stderr, flush=True)
    # Learning curves do not depend on the load of the machine, so they are stored in any case.
    report(curves, {**results.conditions(before), "quiet": True}, keep=not args.quick)


def report(curves: dict[str, list[Curve]], machine: dict[str, Any], *, keep: bool) -> None:
    """Compute areas and intervals, and publish."""
    first, last = common_range([curve for side in curves.values() for curve in side])
    areas = {name: [area(curve, first, last) for curve in side] for name, side in curves.items()}
    intervals = {name: bootstrap(values) for name, values in areas.items()}
    rows = []
    for name, one in intervals.items():
        wide = mean_interval(areas[name])
        by_seed = ", ".join(f"{value:.1f}" for value in areas[name])
        span, t_span = f"{one.low:.1f} to {one.high:.1f}", f"{wide.low:.1f} to {wide.high:.1f}"
        rows.append([name, f"{one.mean:.1f}", span, t_span, by_seed])
    overlap = {name: one.overlaps(intervals[THEIRS]) for name, one in intervals.items() if name != THEIRS}
    verdicts = [
        f"The bootstrap intervals of {name} and {THEIRS} **"
        + ("overlap: no difference in learning" if same else "do not overlap: learning differs")
        + "**."
        for name, same in overlap.items()
    ]
    seeds = len(next(iter(curves.values())))
    body = (
        f"CartPole-v1, mean return from {first:,.0f} to {last:,.0f} steps (area under the curve by length), "
        f"{seeds} seeds:\n\n"
        + results.table(["", "mean", "95 % bootstrap", METHOD, "by seed"], rows)
        + "\n\n"
        + " ".join(verdicts)
    )
    result = {
        "curves": curves,
        "areas": areas,
        "intervals": {name: asdict(one) for name, one in intervals.items()},
        "overlap": overlap,
    }
    folder = results.publish("learning", "Learning curves against stable-baselines3", body, result, machine, keep=keep)
    picture(curves, folder / "learning.png")


def picture(curves: dict[str, Sequence[Curve]], path: Path) -> None:
    """A thin line for each seed and a thick line for their mean."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8.5, 4.6))
    for (name, side), colour in zip(curves.items(), COLOURS, strict=True):
        grid = np.linspace(*common_range(side), 200)
        lines = [np.interp(grid, *np.array(curve, np.float64).T) for curve in side]
        for line in lines:
            axis.plot(grid, line, color=colour, lw=0.8, alpha=0.35)
        axis.plot(grid, np.mean(lines, 0), color=colour, lw=2.6, label=f"{name}, mean of {len(side)} seeds")
    axis.set_title("CartPole-v1: mean return of the last 100 episodes", loc="left", fontsize=11)
    axis.set_xlabel("env steps")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, loc="lower right", labelcolor="linecolor")
    axis.grid(axis="y", color="#E4E4E4")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()

"""How large is the policy lag? Updates between collecting data and learning from it, in real runs of each mode.

make bench-lag
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.harness import results
from paceline.config.train_config import TrainConfig
from paceline.measure.record import Summary
from paceline.train.run import Run

ALGOS: dict[str, dict[str, Any]] = {
    "ppo --pipeline": {"algo": "ppo", "pipeline": True},
    "impala": {"algo": "impala"},
    "impala, 8 workers": {"algo": "impala", "num_workers": 8},
    "impala --sync-every 4": {"algo": "impala", "sync_every": 4},
    "appo": {"algo": "appo"},
    "a3c": {"algo": "a3c"},
    "a3c, 8 workers": {"algo": "a3c", "num_workers": 8},
}


def run(settings: dict[str, Any], steps: int) -> Summary:
    """Train CartPole for `steps`."""
    common = {"env": "CartPole-v1", "n_envs": 32, "num_workers": 2, "seed": 1, "n_eval_episodes": 0, "quiet": True}
    with Run(TrainConfig.from_flat(**{**common, "total_timesteps": steps, **settings})) as training:
        return training.go()


def main() -> None:
    """Train all modes, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--quick", action="store_true", help="only check that it runs: few steps, no stored results")
    args = parser.parse_args()
    before = results.MachineLoad.now()
    found = {name: run(settings, 20_000 if args.quick else args.steps) for name, settings in ALGOS.items()}
    rows = [
        [
            name,
            *(f"{summary.lag[key]:.2g}" for key in ("mean", "p50", "p90", "p99", "max")),
            f"{summary.dropped_steps:,}",
        ]
        for name, summary in found.items()
    ]
    body = (
        f"CartPole-v1, 32 envs, 2 workers unless the row names another number, {args.steps:,} steps each, default "
        "settings of each algorithm:\n\n"
        + results.table(["", "mean lag", "median", "90 %", "99 %", "max", "dropped steps"], rows)
    )
    plain = {"lag_counts": {name: dict(summary.lag_counts) for name, summary in found.items()}}
    folder = results.publish("lag", "Policy lag", body, plain, results.conditions(before), keep=not args.quick)
    picture(plain["lag_counts"], folder / "lag.png")


def picture(counts: dict[str, dict[str, int]], path: Path) -> None:
    """One histogram per mode, one below the other."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    most = max(int(lag) for one in counts.values() for lag in one)
    figure, axes = plt.subplots(len(counts), 1, figsize=(7, 1.15 * len(counts) + 0.6), sharex=True)
    for axis, (name, one) in zip(axes, counts.items(), strict=True):
        total = sum(one.values())
        axis.bar([int(lag) for lag in one], [count / total for count in one.values()], width=0.8, color="#2F6690")
        axis.text(0.99, 0.85, name, transform=axis.transAxes, ha="right", va="top", fontsize=10)
        axis.set_ylim(0, 1.05)
        axis.set_yticks([0, 1], ["0", "100 %"])
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlim(-0.6, most + 0.6)
    axes[-1].set_xlabel("lag: updates between collecting a slot and learning from it")
    figure.suptitle("share of slots by lag", x=0.08, ha="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()

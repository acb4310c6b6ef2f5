"""How fast does network defence train? Episodes/s of PPO with 100 envs, with and without the alignment reward.

    make bench-cyber

The measurement covers collection, reading the true state after every step, reward shaping and learning. Every variant
trains in a process of its own with two workers, which are stopped during the windows of the others.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.harness import results
from benchmarks.harness.contestants import Contestant
from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.training import CyberOptions, beneath, suited

WORKFLOW = ("op_server", "enterprise", "op_host", "defender", "user")
WINDOW_S = 6.0
EPISODE = 100
MIN_RATE, MIN_SHARE = 200.0, 0.85
"""Targets: episodes/s of every variant, and the share of the plain variant's speed that the alignment reward keeps."""
SIDES = {
    "plain": CyberOptions(),
    "aligned, ordered": CyberOptions(workflow=WORKFLOW),
    "aligned, state": CyberOptions(workflow=WORKFLOW, compliance="state"),
}


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--num-workers", type=int, default=2)
    args = parser.parse_args()
    before = results.MachineLoad.now()
    found = measure(args.num_workers, 1 if args.quick else args.rounds, 0.2 if args.quick else WINDOW_S)
    rows = []
    for side, rates in found.items():
        middle, spread = results.median_spread(rates)
        share, share_spread = results.ratio(rates, found["plain"])
        rows.append(
            [
                side,
                f"{middle:,.0f} ± {spread:,.0f}",
                f"{MIN_RATE:,.0f} ({'met' if middle >= MIN_RATE else 'missed'})",
                results.format_ratio(share, share_spread),
                "" if side == "plain" else f"{MIN_SHARE:g} ({'met' if share >= MIN_SHARE else 'missed'})",
            ]
        )
    header = ["", "episodes/s", "target", "times plain", "target"]
    body = (
        f"`paceline/NetworkDefence-v0` against Meander, 100 envs, episodes of {EPISODE} steps, MLP 64x64, "
        f"{args.num_workers} workers:\n\n{results.table(header, rows)}"
    )
    machine = results.conditions(before)
    results.publish("cyber", "Network defence", body, {"episodes_per_s": found}, machine, keep=not args.quick)


def measure(num_workers: int, rounds: int, window_s: float) -> dict[str, list[float]]:
    """Episodes per second of every variant, in alternating windows."""
    with ExitStack() as stack:
        alive = {}
        for side, options in SIDES.items():
            alive[side] = stack.enter_context(_training(side, options, num_workers))
            alive[side].read_reply()
            alive[side].window(0.0)  # warm-up of one iteration
        cells = {side: partial(_rate, one, window_s) for side, one in alive.items()}
        return results.interleave(cells, rounds)


def _rate(one: Contestant, window_s: float) -> float:
    return one.window(window_s).rate / EPISODE


def _training(side: str, options: CyberOptions, num_workers: int) -> Contestant:
    config = suited(TrainConfig.from_flat(**beneath(set())), options, set()).merge(num_workers=num_workers)
    flat: dict[str, Any] = {name: value for part in config.to_dict().values() for name, value in part.items()}
    settings = {**flat, "shared": [], "ours": flat}
    return Contestant("benchmarks.harness.windows_paceline", settings, log=f"cyber-{side}.log")


if __name__ == "__main__":
    main()

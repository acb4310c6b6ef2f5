"""Network defence end to end: episodes a second of PPO with 100 envs, with and without the alignment reward.

    make bench-cyber

Collection, the true state beside every step, reward shaping and learning are all in it. Every side trains in a process
of its own with two workers, and rests while the others have their windows.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import results
from contestants import Contestant

from paceline.config.train_config import TrainConfig
from paceline.domains.cyber.training import CyberOptions, beneath, suited

HERE = Path(__file__).parent
WORKFLOW = ("op_server", "enterprise", "op_host", "defender", "user")
WINDOW_S = 6.0
EPISODE = 100
FASTEST, SLOWEST = 200.0, 0.85
"""Episodes a second of every side, and the share of the plain side's that alignment has to keep."""
SIDES = {
    "plain": CyberOptions(),
    "aligned, ordered": CyberOptions(workflow=WORKFLOW),
    "aligned, state": CyberOptions(workflow=WORKFLOW, compliance="state"),
}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    parser.add_argument("--num-workers", type=int, default=2)
    args = parser.parse_args()
    before = results.Calm.now()
    found = measure(args.num_workers, 1 if args.quick else args.rounds, 0.2 if args.quick else WINDOW_S)
    rows = []
    for side, rates in found.items():
        middle, spread = results.median_spread(rates)
        share, share_spread = results.ratio(rates, found["plain"])
        rows.append(
            [
                side,
                f"{middle:,.0f} ± {spread:,.0f}",
                f"{FASTEST:,.0f} ({'met' if middle >= FASTEST else 'missed'})",
                results.shown(share, share_spread),
                "" if side == "plain" else f"{SLOWEST:g} ({'met' if share >= SLOWEST else 'missed'})",
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
    """Episodes per second of every side, in turns."""
    with ExitStack() as stack:
        alive = {}
        for side, options in SIDES.items():
            alive[side] = stack.enter_context(_training(side, options, num_workers))
            alive[side].answer()
            alive[side].window(0.0)  # one iteration: loads kernels, touches every page
        cells = {side: partial(_rate, one, window_s) for side, one in alive.items()}
        return results.in_turns(cells, rounds)


def _rate(one: Contestant, window_s: float) -> float:
    return one.window(window_s).rate / EPISODE


def _training(side: str, options: CyberOptions, num_workers: int) -> Contestant:
    config = suited(TrainConfig.from_flat(**beneath(set())), options, set()).merge(num_workers=num_workers)
    flat: dict[str, Any] = {name: value for part in config.to_dict().values() for name, value in part.items()}
    settings = {**flat, "shared": [], "ours": flat}
    command = [sys.executable, str(HERE / "windows_paceline.py"), json.dumps(settings)]
    return Contestant(command, log=results.LOGS / f"cyber-{side}.log", path=[HERE, HERE.parent / "src"])


if __name__ == "__main__":
    main()

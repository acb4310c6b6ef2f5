"""Is sequential PPO faster than stable-baselines3's PPO with DummyVecEnv? One run with alternating windows.

    make bench-sb3

Both libraries train CartPole-v1 with the same settings, each in a process of its own that is stopped during the
other's window. The order alternates from round to round, so that a drifting machine favours neither.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import peer_venvs, results
from benchmarks.harness.contestants import Contestant
from benchmarks.harness.settings import CARTPOLE_PPO

TARGET = 1.4


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter with stable-baselines3; by default one is built")
    parser.add_argument("--rounds", type=int, default=7, help="windows of each library")
    parser.add_argument("--window-s", type=float, default=6.0)
    args = parser.parse_args()
    sb3_python = args.sb3_python or peer_venvs.require("sb3")
    before = results.MachineLoad.now()
    rates: dict[str, list[float]] = {"paceline": [], "sb3": []}
    with ExitStack() as stack:
        sides = {
            "paceline": stack.enter_context(
                Contestant("benchmarks.harness.windows_paceline", CARTPOLE_PPO, log="sb3_ppo-paceline.log")
            ),
            "sb3": stack.enter_context(
                Contestant(
                    "benchmarks.peers.windows_sb3", CARTPOLE_PPO, log="sb3_ppo-sb3.log", python=sb3_python, source=None
                )
            ),
        }
        about = {name: side.read_reply() for name, side in sides.items()}
        for side in sides.values():
            side.window(2.0)  # warm-up: loads kernels, touches every page
        for number in range(args.rounds):
            for name in sorted(sides, reverse=bool(number % 2)):
                rates[name].append(sides[name].window(args.window_s).rate)
            print(f"round {number + 1}: " + ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in rates), flush=True)
    report(rates, about, results.conditions(before))


def report(rates: dict[str, list[float]], about: dict[str, dict[str, Any]], machine: dict[str, Any]) -> None:
    """Compute the ratio and publish."""
    ratio, spread = results.median_spread([ours / theirs for ours, theirs in zip(*rates.values(), strict=True)])
    rows = []
    for name, windows in rates.items():
        rate, rate_spread = results.median_spread(windows)
        threads = str(about[name]["threads"])
        rows.append([about[name]["library"], threads, f"{rate:,.0f} ± {rate_spread:,.0f}"])
    noise = "" if spread <= 0.1 * ratio else " The spread is above 10 %: inconclusive, run again."
    body = (
        f"CartPole-v1, {CARTPOLE_PPO['n_envs']} envs x {CARTPOLE_PPO['n_steps']} steps, "
        f"{CARTPOLE_PPO['n_epochs']} epochs, minibatches of {CARTPOLE_PPO['batch_size']}, "
        f"MLP 64x64 tanh in separate towers, sequential; {len(rates['sb3'])} alternating windows each.\n\n"
        + results.table(["library", "torch threads", "steps/s"], rows)
        + f"\n\nRatio **{ratio:.2f} ± {spread:.2f}** (median of the rounds ± half the interquartile range; "
        f"target {TARGET}).{noise}"
    )
    result = {
        "settings": CARTPOLE_PPO,
        "steps_per_s": rates,
        "about": about,
        "ratio": ratio,
        "ratio_spread": spread,
        "target": TARGET,
    }
    results.publish("sb3_ppo", "Sequential PPO against stable-baselines3", body, result, machine)


if __name__ == "__main__":
    main()

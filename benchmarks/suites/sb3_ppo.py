"""Sequential PPO against stable-baselines3 PPO with DummyVecEnv, in one run, in alternating windows.

    make bench-sb3

Both train CartPole-v1 with the same settings, each in a process of its own that rests while the other's window
runs. Windows swap order from round to round, so that a drifting machine favours neither.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import results
from contestants import Contestant

HERE = Path(__file__).parent

SHARED = {
    "n_steps": 128,
    "batch_size": 1024,
    "n_epochs": 4,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "normalize_advantage": True,
}
"""Settings that both libraries call by the same name."""

SETTINGS: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 32,
    "seed": 0,
    "hidden_sizes": [64, 64],
    "shared": list(SHARED),
    **SHARED,
}
TARGET = 1.4


def library(python: str, script: str) -> Contestant:
    """One library at work in a process of its own; windows.py tells how it is talked to."""
    log = HERE / ".logs" / f"{Path(script).stem}.log"
    return Contestant([python, str(HERE / script), json.dumps(SETTINGS)], log=log, path=[HERE])


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", default=str(HERE / ".venv-sb3" / "bin" / "python"), help="built by make")
    parser.add_argument("--rounds", type=int, default=7, help="windows of each library")
    parser.add_argument("--window-s", type=float, default=6.0)
    args = parser.parse_args()
    before = results.Calm.now()
    rates: dict[str, list[float]] = {"paceline": [], "sb3": []}
    with ExitStack() as stack:
        sides = {
            "paceline": stack.enter_context(library(sys.executable, "windows_paceline.py")),
            "sb3": stack.enter_context(library(args.sb3_python, "windows_sb3.py")),
        }
        about = {name: side.answer() for name, side in sides.items()}
        for side in sides.values():
            side.window(2.0)  # loads kernels, touches every page
        for number in range(args.rounds):
            for name in sorted(sides, reverse=bool(number % 2)):
                rates[name].append(sides[name].window(args.window_s).rate)
            print(f"round {number + 1}: " + ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in rates), flush=True)
    report(rates, about, results.conditions(before))


def report(rates: dict[str, list[float]], about: dict[str, dict[str, Any]], machine: dict[str, Any]) -> None:
    """Sum up and publish."""
    ratio, spread = results.median_spread([ours / theirs for ours, theirs in zip(*rates.values(), strict=True)])
    rows = []
    for name, windows in rates.items():
        rate, rate_spread = results.median_spread(windows)
        threads = str(about[name]["threads"])
        rows.append([about[name]["library"], threads, f"{rate:,.0f} ± {rate_spread:,.0f}"])
    noise = "" if spread <= 0.1 * ratio else " The spread is above 10 %: inconclusive, run again."
    body = (
        f"CartPole-v1, {SETTINGS['n_envs']} envs x {SETTINGS['n_steps']} steps, {SETTINGS['n_epochs']} epochs, "
        f"minibatches of {SETTINGS['batch_size']}, MLP 64x64 tanh in separate towers, sequential; "
        f"{len(rates['sb3'])} windows each, in turns.\n\n"
        + results.table(["library", "torch threads", "steps/s"], rows)
        + f"\n\nRatio **{ratio:.2f} ± {spread:.2f}** (median of the rounds, half the quartile range; "
        f"target {TARGET}).{noise}"
    )
    result = {
        "settings": SETTINGS,
        "steps_per_s": rates,
        "about": about,
        "ratio": ratio,
        "ratio_spread": spread,
        "target": TARGET,
    }
    results.publish("sb3_ppo", "Sequential PPO against stable-baselines3", body, result, machine)


if __name__ == "__main__":
    main()

"""Sequential PPO against stable-baselines3 PPO with DummyVecEnv, in one run, in alternating windows.

    make bench-sb3

Both train CartPole-v1 with the same settings, each in a process of its own that rests while the other's window
runs. Windows swap order from round to round, so that a drifting machine favours neither.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import results

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
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
TARGET = 1.4
ANSWER_TIMEOUT_S = 120.0


class Library:
    """One library at work in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.about = self._answer()

    def window(self, seconds: float) -> float:
        """Train for so long, to the end of the iteration; returns steps per second."""
        if self._process.stdin is None:
            raise RuntimeError("the process was started without a pipe to it")
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        answer = self._answer()
        return float(answer["steps"] / answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SystemExit(f"{self._process.args!r}: ended with code {self._process.wait(ANSWER_TIMEOUT_S)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def library(python: str, script: str) -> Iterator[Library]:
    """Start a library, and end it when the block is left."""
    # Each decides on its threads by itself: the makefile's own limits must not reach it.
    environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    with subprocess.Popen(
        [python, str(HERE / script), json.dumps(SETTINGS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield Library(process)
        finally:
            process.kill()


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
        for side in sides.values():
            side.window(2.0)  # loads kernels, touches every page
        for number in range(args.rounds):
            for name in sorted(sides, reverse=bool(number % 2)):
                rates[name].append(sides[name].window(args.window_s))
            print(f"round {number + 1}: " + ", ".join(f"{name} {rates[name][-1]:,.0f}" for name in rates), flush=True)
        about = {name: side.about for name, side in sides.items()}
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

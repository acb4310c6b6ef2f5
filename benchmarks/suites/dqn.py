"""How fast is DQN, against stable-baselines3 with equal settings, and in parallel against sequential on slow envs?

    make bench-dqn

Every variant trains in a process of its own, which is stopped during the windows of the others.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import peer_venvs, results
from benchmarks.harness.contestants import Contestant

SHARED: dict[str, Any] = {"batch_size": 32, "learning_rate": 1e-4, "gamma": 0.99, "learning_starts": 1000}
"""Settings with the same name in both libraries."""
STEPS_PER_UPDATE = 4
"""Train frequency of both libraries: one update of a batch of 32 per 4 env steps."""
CARTPOLE: dict[str, Any] = {
    "env": "CartPole-v1",
    "seed": 0,
    "hidden_sizes": [64, 64],
    "shared": list(SHARED),
    **SHARED,
}
OURS = {
    "algo": "dqn",
    "buffer_size": 100_000,
    "double": False,
    "dueling": False,
    "samples_per_insert": SHARED["batch_size"] / STEPS_PER_UPDATE,
    "target_update": 2500,
    "activation": "relu",
}
SIDES: dict[str, tuple[bool, dict[str, Any]]] = {
    "paceline, async, 2 workers": (True, {"n_envs": 16, "ours": {**OURS, "schedule": "async", "num_workers": 2}}),
    "paceline, batch, sequential": (True, {"n_envs": 16, "ours": {**OURS, "n_steps": 8, "num_workers": 0}}),
    "SB3, 1 env": (False, {"n_envs": 1, "theirs": {"train_freq": 4, "gradient_steps": 1}}),
    "SB3, 4 envs": (False, {"n_envs": 4, "theirs": {"train_freq": 1, "gradient_steps": 1}}),
}
TARGET = 3.0
BUSY: dict[str, Any] = {"env": "paceline/Busy-v0", "n_envs": 32, "seed": 0, "hidden_sizes": [64, 64], "shared": []}
BUSY_OURS = {"algo": "dqn", "samples_per_insert": 4.0, "batch_size": 64, "learning_starts": 500}
BUSY_SIDES: dict[str, dict[str, Any]] = {
    "sequential": {**BUSY_OURS, "n_steps": 16, "num_workers": 0},
    "batch, 2 workers": {**BUSY_OURS, "n_steps": 16, "num_workers": 2},
    "async, 2 workers": {**BUSY_OURS, "schedule": "async", "num_workers": 2},
}
BUSY_TARGET = 1.7


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", help="interpreter with stable-baselines3; by default one is built")
    results.add_size_flags(parser, rounds=5)
    args = parser.parse_args()
    sb3_python = args.sb3_python or peer_venvs.require("sb3")
    before = results.MachineLoad.now()
    rounds, window_s = (1, 0.3) if args.quick else (args.rounds, 5.0)
    cartpole_sides = {
        name: _ours(name, {**CARTPOLE, **settings}) if own else _sb3(sb3_python, name, {**CARTPOLE, **settings})
        for name, (own, settings) in SIDES.items()
    }
    against = measure(cartpole_sides, rounds, window_s)
    busy = measure({name: _ours(name, {**BUSY, "ours": ours}) for name, ours in BUSY_SIDES.items()}, rounds, window_s)
    best = max((name for name in against if "SB3" in name), key=lambda name: results.median_spread(against[name])[0])
    body = (
        f"CartPole-v1, MLP 64x64, one update of {SHARED['batch_size']} per {STEPS_PER_UPDATE} steps, no double, no "
        f"dueling, uniform replay:\n\n{_table(against, best, {'paceline, async, 2 workers': TARGET})}\n\n"
        "Busy 1 ms of CPU, 32 envs, samples per insert 4:\n\n"
        f"{_table(busy, 'sequential', {'async, 2 workers': BUSY_TARGET})}\n\n"
        f"Median of {rounds} alternating windows of at least {window_s:g} s, ± half the interquartile range."
    )
    result = {"cartpole": against, "busy": busy}
    machine = results.conditions(before)
    results.publish(
        "dqn", "DQN against stable-baselines3, and parallel DQN", body, result, machine, keep=not args.quick
    )


def measure(sides: dict[str, Any], rounds: int, window_s: float) -> dict[str, list[float]]:
    """Steps per second of every variant, in alternating windows."""
    with ExitStack() as stack:
        alive: dict[str, Contestant] = {}
        for name, start in sides.items():
            alive[name] = stack.enter_context(start())
            alive[name].read_reply()
            alive[name].window(1.0)  # warm-up: loads kernels, touches every page, and passes learning_starts
        return results.interleave(
            {name: partial(lambda one: one.window(window_s).rate, one) for name, one in alive.items()}, rounds
        )


def _ours(name: str, settings: dict[str, Any]) -> Any:
    return partial(Contestant, "benchmarks.harness.windows_paceline", settings, log=_log(name))


def _sb3(python: str | Path, name: str, settings: dict[str, Any]) -> Any:
    return partial(Contestant, "benchmarks.peers.windows_sb3", settings, log=_log(name), python=python, source=None)


def _log(name: str) -> str:
    return f"dqn-{name.replace(' ', '-').replace(',', '')}.log"


def _table(found: dict[str, list[float]], base: str, targets: dict[str, float]) -> str:
    rows = []
    for name, rates in found.items():
        value, spread = results.ratio(rates, found[base])
        target = targets.get(name)
        verdict = "" if target is None else f"{target:g} ({'met' if value >= target else 'missed'})"
        middle, around = results.median_spread(rates)
        rows.append([name, f"{middle:,.0f} ± {around:,.0f}", results.format_ratio(value, spread), verdict])
    return results.table(["", "steps/s", f"times {base}", "target"], rows)


if __name__ == "__main__":
    main()

"""DQN: against stable-baselines3 at the same settings, and parallel against sequential where envs cost something.

    make bench-dqn

Every side trains in a process of its own and rests while the others have their windows.
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

HERE = Path(__file__).parent
SHARED: dict[str, Any] = {"batch_size": 32, "learning_rate": 1e-4, "gamma": 0.99, "learning_starts": 1000}
"""Settings that both libraries call by the same name."""
STEPS_AN_UPDATE = 4
"""The train frequency of both: one update of 32 for every 4 steps."""
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
    "samples_per_insert": SHARED["batch_size"] / STEPS_AN_UPDATE,
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
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3-python", default=str(HERE / ".venv-sb3" / "bin" / "python"), help="built by make")
    results.add_size_flags(parser, rounds=5)
    args = parser.parse_args()
    before = results.Calm.now()
    rounds, window_s = (1, 0.3) if args.quick else (args.rounds, 5.0)
    theirs = {
        name: _side(sys.executable if own else args.sb3_python, own, name, {**CARTPOLE, **settings})
        for name, (own, settings) in SIDES.items()
    }
    against = measure(theirs, rounds, window_s)
    mine = {name: _side(sys.executable, True, name, {**BUSY, "ours": ours}) for name, ours in BUSY_SIDES.items()}
    busy = measure(mine, rounds, window_s)
    best = max((name for name in against if "SB3" in name), key=lambda name: results.median_spread(against[name])[0])
    body = (
        f"CartPole-v1, MLP 64x64, updates of {SHARED['batch_size']} for every {STEPS_AN_UPDATE} steps, no double, no "
        f"dueling, uniform replay:\n\n{_table(against, best, {'paceline, async, 2 workers': TARGET})}\n\n"
        "Busy 1 ms of CPU, 32 envs, samples per insert 4:\n\n"
        f"{_table(busy, 'sequential', {'async, 2 workers': BUSY_TARGET})}\n\n"
        f"Median of {rounds} windows of at least {window_s:g} s, in turns, ± half the range between the quartiles."
    )
    result = {"cartpole": against, "busy": busy}
    machine = results.conditions(before)
    results.publish(
        "dqn", "DQN against stable-baselines3, and parallel DQN", body, result, machine, keep=not args.quick
    )


def measure(sides: dict[str, Any], rounds: int, window_s: float) -> dict[str, list[float]]:
    """Steps per second of every side, in turns."""
    with ExitStack() as stack:
        alive: dict[str, Contestant] = {}
        for name, start in sides.items():
            alive[name] = stack.enter_context(start())
            alive[name].answer()
            alive[name].window(1.0)  # loads kernels, touches pages, and gets past learning_starts
        return results.in_turns(
            {name: partial(lambda one: one.window(window_s).rate, one) for name, one in alive.items()}, rounds
        )


def _side(python: str, own: bool, name: str, settings: dict[str, Any]) -> Any:
    script = "windows_paceline.py" if own else "windows_sb3.py"
    log = results.LOGS / f"dqn-{name.replace(' ', '-').replace(',', '')}.log"
    return partial(
        Contestant, [python, str(HERE / script), json.dumps(settings)], log=log, path=[HERE, HERE.parent / "src"]
    )


def _table(found: dict[str, list[float]], base: str, targets: dict[str, float]) -> str:
    rows = []
    for name, rates in found.items():
        value, spread = results.ratio(rates, found[base])
        target = targets.get(name)
        verdict = "" if target is None else f"{target:g} ({'met' if value >= target else 'missed'})"
        middle, around = results.median_spread(rates)
        rows.append([name, f"{middle:,.0f} ± {around:,.0f}", results.shown(value, spread), verdict])
    return results.table(["", "steps/s", f"times {base}", "target"], rows)


if __name__ == "__main__":
    main()

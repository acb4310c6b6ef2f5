"""How fast is the CybORG adapter? Check that its games equal the stock simulator's, then compare steps/s of one env.

    CYBORG_PATH=path/to/cage-challenge-2 make bench-cyborg

Every measurement plays the same episodes of 100 steps, resets included. `stock` is the wrapper that the challenge
publishes; the others are the adapter with none, two and all of its accelerations.
"""

from __future__ import annotations

import argparse
import importlib
import random
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import results
from paceline.domains.cyber.actions import ACTIONS, HOSTS
from paceline.integrations.cyborg import CybORGEnv, simulator
from paceline.integrations.cyborg.install import build

STEPS = 100
STATE_EVERY = 10
"""Steps between two comparisons of the full true state, which costs more than a step."""
TARGET = 4.0
REDS = ("bline", "meander")
SIDES: dict[str, bool | str] = {"nothing": False, "two": "reward,actions", "all": True}


class Stock:
    """The wrapper that the challenge publishes, with the methods of a Gymnasium env."""

    def __init__(self, red_agent: str) -> None:
        self.cyborg = build(red_agent).cyborg
        wrappers = importlib.import_module("CybORG.Agents.Wrappers")
        self._env = wrappers.ChallengeWrapper(env=self.cyborg, agent_name="Blue")

    def reset(self, seed: int) -> NDArray[Any]:
        """Reset, after seeding Python's global generator, which CybORG uses."""
        random.seed(seed)
        return np.asarray(self._env.reset())

    def step(self, action: int) -> tuple[NDArray[Any], float]:
        """Take the defender's action; returns observation and reward."""
        seen, reward, _, _ = self._env.step(action)
        return seen, reward


def random_actions(seed: int, steps: int) -> list[int]:
    """Draw actions uniformly."""
    return [int(action) for action in np.random.default_rng(seed).integers(0, ACTIONS, steps)]


def scripted_actions(seed: int, steps: int) -> list[int]:
    """A defender that analyses, places decoys, removes and restores host by host, and restores Op_Server0 often."""
    order = np.random.default_rng(seed).permutation(len(HOSTS))
    kinds = (0, 2, 7, 1, 10, 4)  # Analyse, Apache, SSHD, Remove, Restore, Haraka
    turns = [2 + kind * len(HOSTS) + int(host) for host in order for kind in kinds]
    restore_server = 2 + 10 * len(HOSTS) + HOSTS.index("Op_Server0")
    return [restore_server if step % 37 == 36 else turns[step % len(turns)] for step in range(steps)]


def stock_game(red_agent: str, seed: int, actions: list[int]) -> list[Any]:
    """Play a game in the stock simulator.

    Returns:
        The first observation, then (observation, reward, true state or None) of each step.
    """
    stock = Stock(red_agent)
    steps: list[Any] = [stock.reset(seed).tolist()]
    for step, action in enumerate(actions):
        seen, reward = stock.step(action)
        true = stock.cyborg.get_agent_state("True") if step % STATE_EVERY == 0 else None
        steps.append((seen.tolist(), reward, true))
    return steps


def require_same(stock: list[Any], red_agent: str, seed: int, actions: list[int], fast: bool | str) -> None:
    """Play the same game with the adapter and compare it with the stock simulator's step by step.

    Raises:
        SystemExit: The games differ.
    """
    env = CybORGEnv(red_agent=red_agent, max_steps=len(actions), fast=fast)
    equal = env.reset(seed=seed)[0].tolist() == stock[0]
    for step, (action, (seen, reward, true)) in enumerate(zip(actions, stock[1:], strict=True)):
        other, paid, *_ = env.step(action)
        equal = equal and other.tolist() == seen and paid == reward
        if true is not None:
            equal = equal and env._parts.cyborg.get_agent_state("True") == true
            equal = equal and env.true_state().tolist() == attacker_levels(true)
        if not equal:
            raise SystemExit(f"{red_agent}, seed {seed}, fast={fast!r}: the games differ from step {step} on")


def attacker_levels(true: dict[str, Any]) -> list[int]:
    """The attacker's access level on each host, from the simulator's full true state."""
    levels = []
    for host in HOSTS:
        names = [session["Username"] for session in true[host].get("Sessions", ()) if session["Agent"] == "Red"]
        levels.append(max((2 if name in ("root", "SYSTEM") else 1 for name in names), default=0))
    return levels


def window(reset: Callable[[int], object], step: Callable[[int], object], episodes: int) -> float:
    """Steps per second over `episodes` episodes with the same actions in every call."""
    plans = [random_actions(seed, STEPS) for seed in range(episodes)]
    began = perf_counter()
    for seed, plan in enumerate(plans):
        reset(seed)
        for action in plan:
            step(action)
    return episodes * STEPS / (perf_counter() - began)


def main() -> None:
    """Compare games, measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=7)
    parser.add_argument("--seeds", type=int, default=3, help="games to compare for each attacker and defender")
    args = parser.parse_args()
    compared = 60 if args.quick else 600
    for red in REDS:
        for seed in range(1 if args.quick else args.seeds):
            for plan in (random_actions, scripted_actions):
                actions = plan(seed, compared)
                expected = stock_game(red, seed, actions)
                for side in SIDES.values():
                    require_same(expected, red, seed, actions, side)
                restores = sum(action >= ACTIONS - len(HOSTS) for action in actions)
                print(f"{red}, seed {seed}, {plan.__name__}: {compared} equal steps, {restores} Restores", flush=True)
    cells: dict[tuple[str, str], Callable[[], float]] = {}
    for red in REDS:
        stock = Stock(red)
        episodes = 1 if args.quick else 5
        cells[red, "stock"] = partial(window, stock.reset, stock.step, episodes)
        for name, fast in SIDES.items():
            env = CybORGEnv(red_agent=red, max_steps=STEPS, fast=fast)
            cells[red, name] = partial(window, lambda seed, env=env: env.reset(seed=seed), env.step, episodes)
    before = results.MachineLoad.now()
    found = results.interleave(cells, 1 if args.quick else args.rounds)
    rows = []
    for red in REDS:
        for name in ("stock", *SIDES):
            rate, spread = results.median_spread(found[red, name])
            times = results.ratio(found[red, name], found[red, "stock"])
            verdict = "" if name != "all" else "met" if times[0] >= TARGET else "missed"
            rows.append([f"{red}, {name}", f"{rate:,.0f} ± {spread:,.0f}", results.format_ratio(*times), verdict])
    found_as = simulator()
    which = f"CybORG {found_as.version}, commit {found_as.commit}, rules of {found_as.rules}"
    body = (
        f"One env, episodes of {STEPS} steps with random actions, resets included; {which}. Before that, {compared} "
        f"steps each with random and scripted defenders gave equal observations, rewards and full true states.\n\n"
        + results.table(["attacker, accelerations", "steps/s", "times stock", f"target {TARGET:g}"], rows)
    )
    rates = {f"{red} {name}": values for (red, name), values in found.items()}
    result = {"rates": rates, "simulator": which}
    results.publish(
        "cyborg", "CybORG: stock simulator and adapter", body, result, results.conditions(before), keep=not args.quick
    )


if __name__ == "__main__":
    main()

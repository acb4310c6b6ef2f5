"""How fast does the network-defence env step? The vector env with 1 to 1000 envs and the single env, on one core.

    make bench-cyber-env

The defender acts at random. `with truth` also reads the true state after every step, which the alignment reward needs.
Episodes have 100 steps; resets are included.
"""

from __future__ import annotations

import argparse
from functools import partial
from time import perf_counter

import numpy as np

from benchmarks.harness import results
from paceline.domains.cyber.actions import ACTIONS
from paceline.domains.cyber.env import NetworkDefence
from paceline.domains.cyber.scenario import RedAgent
from paceline.domains.cyber.vector import NetworkDefenceVector

ENVS = (1, 10, 50, 100, 1000)
ATTACKERS: tuple[RedAgent, ...] = ("bline", "meander")


class Many:
    """A vector env with random actions."""

    def __init__(self, red_agent: RedAgent, n: int) -> None:
        self.env = NetworkDefenceVector(n, red_agent=red_agent)
        self.actions = np.random.default_rng(0).integers(0, ACTIONS, (256, n))
        self.turn = 0
        self.env.reset(seed=0)
        for _ in range(20):
            self.step()

    def step(self) -> None:
        """One step of every env."""
        self.env.step(self.actions[self.turn % 256])
        self.turn += 1

    def per_second(self, seconds: float, truth: bool) -> float:
        """Env steps per second, measured for `seconds`."""
        before, began = self.turn, perf_counter()
        while (took := perf_counter() - began) < seconds:
            self.step()
            if truth:
                self.env.true_state()
        return (self.turn - before) * self.env.num_envs / took


class One:
    """A single env with random actions."""

    def __init__(self, red_agent: RedAgent) -> None:
        self.env = NetworkDefence(red_agent=red_agent)
        self.actions = np.random.default_rng(0).integers(0, ACTIONS, 256).tolist()
        self.turn = 0
        self.env.reset(seed=0)

    def per_second(self, seconds: float, truth: bool) -> float:
        """Steps per second, measured for `seconds`."""
        before, began = self.turn, perf_counter()
        while (took := perf_counter() - began) < seconds:
            *_, truncated, _ = self.env.step(self.actions[self.turn % 256])
            if truth:
                self.env.true_state()
            if truncated:
                self.env.reset()
            self.turn += 1
        return (self.turn - before) / took


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=5)
    args = parser.parse_args()
    before = results.MachineLoad.now()
    sizes, seconds = ((100,), 0.05) if args.quick else (ENVS, 0.4)
    contests: dict[tuple[str, str], Many | One] = {}
    for red_agent in ATTACKERS:
        contests[red_agent, "single"] = One(red_agent)
        for n in sizes:
            contests[red_agent, str(n)] = Many(red_agent, n)
    cells = {
        (*key, truth): partial(contest.per_second, seconds, truth)
        for key, contest in contests.items()
        for truth in (False, True)
    }
    found = results.interleave(cells, 1 if args.quick else args.rounds)
    medians = {key: results.median_spread(values) for key, values in found.items()}
    rows = []
    for red_agent, envs in contests:
        (plain, spread), (with_truth, _) = medians[red_agent, envs, False], medians[red_agent, envs, True]
        rows.append([red_agent, envs, f"{plain:,.0f} ± {spread:,.0f}", f"{with_truth:,.0f}"])
    body = (
        f"A random defender on one core, medians of {len(next(iter(found.values())))} interleaved measurements.\n\n"
        + results.table(["attacker", "envs", "steps/s", "with truth"], rows)
    )
    result = {
        "rates": [
            {"red_agent": red_agent, "envs": envs, "truth": truth, "per_second": value, "spread": spread}
            for (red_agent, envs, truth), (value, spread) in medians.items()
        ]
    }
    results.publish(
        "cyber_env", "Network defence: steps per second", body, result, results.conditions(before), keep=not args.quick
    )


if __name__ == "__main__":
    main()

"""How much two cores are worth here: one training, two that know nothing of each other, and one on two workers.

    make bench-ceiling

Two sequential trainings at once share nothing and never wait: together they are as fast as any parallel program could
be on this machine in these minutes. What the parallel training reaches is judged by that, not by the number of cores.

A program that learns from whole batches also waits for the slower of its two cores, again and again, and no two cores
of a shared host are equally fast at all times. What that alone costs is computed from the same two trainings: each
iteration of the one is put beside one of the other, and both count as long as the longer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import results
from contestants import Contestant
from sb3_ppo import SETTINGS

HERE = Path(__file__).parent
WORKERS = 2


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=25)
    parser.add_argument("--window-s", type=float, default=1.0)
    args = parser.parse_args()
    window_s, rounds = (0.2, 1) if args.quick else (args.window_s, args.rounds)
    before = results.Calm.now()
    with ExitStack() as stack, ThreadPoolExecutor(WORKERS) as pool:
        alone = [stack.enter_context(_training(number, 0)) for number in range(WORKERS)]
        parallel = stack.enter_context(_training(WORKERS, WORKERS))
        for contestant in (*alone, parallel):
            contestant.answer()
            contestant.window(0.0)  # one iteration: loads kernels, touches every page

        together: list[float] = []

        def rates(contestants: list[Contestant]) -> list[float]:
            return [window.rate for window in pool.map(lambda one: one.window(window_s), contestants)]

        def at_once() -> float:
            windows = list(pool.map(lambda one: one.window(window_s), alone))
            together.append(in_step([window.said["laps_s"] for window in windows]))
            return sum(window.rate for window in windows)

        found = results.in_turns(
            {
                "one sequential training": lambda: rates(alone[:1])[0],
                f"{WORKERS} sequential trainings at once": at_once,
                f"one training on {WORKERS} workers": lambda: rates([parallel])[0],
            },
            rounds,
        )
    one, apart, _ = found.values()
    found[f"{WORKERS} at once that wait for each other after every iteration"] = [
        rate * share for rate, share in zip(apart, together, strict=True)
    ]
    rows = []
    for name, values in found.items():
        cells = (results.median_spread(values), results.ratio(values, one), results.ratio(values, apart))
        rows.append([name, f"{cells[0][0]:,.0f}", *(results.shown(*cell) for cell in cells[1:])])
    body = (
        f"PPO on CartPole-v1, {SETTINGS['n_envs']} envs: {rounds} windows of {window_s:g} s each, in turns:\n\n"
        + results.table(["", "steps/s", "times one", "times the ceiling"], rows)
    )
    results.publish(
        "ceiling",
        "What two cores are worth",
        body,
        {"steps_per_s": found},
        results.conditions(before),
        keep=not args.quick,
    )


def in_step(laps_s: Sequence[Sequence[float]]) -> float:
    """What is left of their speed if each lap of one lasts as long as the longest that is run beside it.

    Args:
        laps_s: Of each, one lap after another.
    """
    beside = list(zip(*laps_s, strict=False))
    return sum(map(sum, beside)) / (len(laps_s) * sum(map(max, beside)))


def _training(number: int, workers: int) -> Contestant:
    settings = {**SETTINGS, "ours": {"num_workers": workers}}
    command = [sys.executable, str(HERE / "windows_paceline.py"), json.dumps(settings)]
    return Contestant(command, log=results.LOGS / f"ceiling-{number}.log", path=[HERE])


if __name__ == "__main__":
    main()

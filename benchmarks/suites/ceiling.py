"""How much two cores are worth here: one training, two that know nothing of each other, and one on two workers.

    make bench-ceiling

Two sequential trainings at once share nothing and never wait: together they are as fast as any parallel program could
be on this machine in these minutes. What the parallel training reaches is judged by that, not by the number of cores.

A parallel training does something else than two trainings, though. Each of its workers steps half of the envs and
computes half of each minibatch, in calls that cost about as much as for the whole; and it learns from whole batches,
so each rollout and each minibatch takes as long as the slower of two cores takes, and no two cores of a shared
host are equally fast at all times. Two sequential trainings of half the size show both, with nothing of ours between
them: every part of the one is put beside the same part of the other, and both count as long as the longer.

A pipeline waits for nobody in the middle of a batch, and so for no slow core: its row shows what the waiting costs.
The last column goes by iterations in which nobody disturbed: the quickest tenth of each.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import results
from contestants import Contestant, Window
from sb3_ppo import SETTINGS

HERE = Path(__file__).parent
WORKERS = 2
QUIET = 10
"""Percentile of an iteration's time that counts as undisturbed."""
HALF: dict[str, Any] = {
    "n_envs": SETTINGS["n_envs"] // WORKERS,
    "batch_size": SETTINGS["batch_size"] // WORKERS,
    "ours": {"grad_shards": 1},
    "parts": True,
}
"""What one of two workers does: half the envs, and of each minibatch one shard."""


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=25)
    parser.add_argument("--window-s", type=float, default=1.0)
    args = parser.parse_args()
    window_s, rounds = (0.2, 1) if args.quick else (args.window_s, args.rounds)
    before = results.Calm.now()
    with ExitStack() as stack, ThreadPoolExecutor(WORKERS) as pool:
        alone = [stack.enter_context(_training(f"alone-{number}")) for number in range(WORKERS)]
        halves = [stack.enter_context(_training(f"half-{number}", **HALF)) for number in range(WORKERS)]
        parallel = stack.enter_context(_training("parallel", ours={"num_workers": WORKERS}))
        pipeline = stack.enter_context(_training("pipeline", ours={"num_workers": WORKERS, "pipeline": True}))
        for contestant in (*alone, *halves, parallel, pipeline):
            contestant.answer()
            contestant.window(0.0)  # one iteration: loads kernels, touches every page

        def at_once(contestants: list[Contestant]) -> list[Window]:
            return list(pool.map(lambda one: one.window(window_s), contestants))

        laps: dict[str, list[list[float]]] = {}

        def rate(contestants: list[Contestant], name: str) -> float:
            windows = at_once(contestants)
            laps.setdefault(name, []).extend(one.said["laps_s"] for one in windows)
            return sum(window.rate for window in windows)

        in_step: list[float] = []

        def rate_of_halves(name: str) -> float:
            windows = at_once(halves)
            laps.setdefault(name, []).extend(one.said["laps_s"] for one in windows)
            apart = sum(window.rate for window in windows)
            in_step.append(apart * share_in_step([(one.said["laps_s"], one.said["parts_s"]) for one in windows]))
            return apart

        one, apart, of_halves, on_workers, pipelined = (
            "one sequential training",
            f"{WORKERS} sequential trainings at once",
            f"{WORKERS} of half the size at once",
            f"one training on {WORKERS} workers",
            f"one on {WORKERS} workers with `--pipeline`",
        )
        found = results.in_turns(
            {
                one: lambda: rate(alone[:1], one),
                apart: lambda: rate(alone, apart),
                of_halves: lambda: rate_of_halves(of_halves),
                on_workers: lambda: rate([parallel], on_workers),
                pipelined: lambda: rate([pipeline], pipelined),
            },
            rounds,
        )
    waiting = "the same, if they waited for each other after every rollout and minibatch"
    shown = {name: found[name] for name in (one, apart, of_halves)}
    shown |= {waiting: in_step, on_workers: found[on_workers], pipelined: found[pipelined]}
    quiet_ms = {name: 1e3 * float(np.percentile(np.concatenate(each), QUIET)) for name, each in laps.items()}
    # Those at once do twice the steps in an iteration, those of half the size do half.
    steps = {apart: WORKERS}
    rows = []
    for name, values in shown.items():
        cells = (results.median_spread(values), results.ratio(values, found[one]), results.ratio(values, in_step))
        quiet = f"{quiet_ms[one] / quiet_ms[name] * steps.get(name, 1):.2f}" if name in quiet_ms else ""
        rows.append([name, f"{cells[0][0]:,.0f}", *(results.shown(*cell) for cell in cells[1:]), quiet])
    body = (
        f"PPO on CartPole-v1, {SETTINGS['n_envs']} envs: {rounds} windows of {window_s:g} s each, in turns:\n\n"
        + results.table(["", "steps/s", "times one", "times two halves that wait", "times one, undisturbed"], rows)
    )
    results.publish(
        "ceiling",
        "What two cores are worth",
        body,
        {"steps_per_s": shown, "quiet_ms": quiet_ms},
        results.conditions(before),
        keep=not args.quick,
    )


def share_in_step(trainings: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """What is left of their speed if each part of one lasts as long as the longest that is done beside it.

    Args:
        trainings: Of each the seconds of its iterations, and of all the parts in them, in order.
    """
    beside = list(zip(*(parts for _, parts in trainings), strict=False))
    lost_s = sum(max(parts) - sum(parts) / len(parts) for parts in beside) / len(beside)
    apart_s = sum(sum(laps) / len(parts) for laps, parts in trainings) / len(trainings)
    return apart_s / (apart_s + lost_s)


def _training(name: str, **settings: Any) -> Contestant:
    command = [sys.executable, str(HERE / "windows_paceline.py"), json.dumps({**SETTINGS, **settings})]
    return Contestant(command, log=results.LOGS / f"ceiling-{name}.log", path=[HERE])


if __name__ == "__main__":
    main()

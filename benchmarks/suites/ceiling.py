"""How near is a parallel run to the limit of two cores? Compare it with independent trainings on the same cores.

    make bench-ceiling

Two sequential trainings at once share nothing and never wait for each other. Their combined speed is the upper bound
for a parallel program on this machine at this time, so it replaces the number of cores as the limit.

A parallel training has two further costs. Each worker steps half of the envs and computes half of each minibatch, in
calls that cost almost as much as for the whole. And PPO learns from whole batches, so each rollout and each minibatch
takes as long as the slower core, and two cores of a shared host are never equally fast all the time. Two sequential
trainings of half the size show both costs without any code of the parallel mode: the benchmark pairs each part of one
training with the same part of the other, and counts both as long as the longer one.

A pipeline has no barrier within a batch; its row shows what the barriers cost. The last column compares the fastest
10 % of the iterations, which other programs and other virtual machines hardly disturbed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.harness import results
from benchmarks.harness.contestants import Contestant, Window
from benchmarks.harness.settings import CARTPOLE_PPO

WORKERS = 2
UNDISTURBED = 10
"""This percentile of the iteration times counts as undisturbed."""
HALF: dict[str, Any] = {
    "n_envs": CARTPOLE_PPO["n_envs"] // WORKERS,
    "batch_size": CARTPOLE_PPO["batch_size"] // WORKERS,
    "ours": {"grad_shards": 1},
    "parts": True,
}
"""The share of one of two workers: half the envs, and one shard of each minibatch."""


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=25)
    parser.add_argument("--window-s", type=float, default=1.0)
    args = parser.parse_args()
    window_s, rounds = (0.2, 1) if args.quick else (args.window_s, args.rounds)
    before = results.MachineLoad.now()
    with ExitStack() as stack, ThreadPoolExecutor(WORKERS) as pool:
        alone = [stack.enter_context(_training(f"alone-{number}")) for number in range(WORKERS)]
        halves = [stack.enter_context(_training(f"half-{number}", **HALF)) for number in range(WORKERS)]
        parallel = stack.enter_context(_training("parallel", ours={"num_workers": WORKERS}))
        pipeline = stack.enter_context(_training("pipeline", ours={"num_workers": WORKERS, "pipeline": True}))
        for contestant in (*alone, *halves, parallel, pipeline):
            contestant.read_reply()
            contestant.window(0.0)  # warm-up of one iteration: loads kernels, touches every page

        def at_once(contestants: list[Contestant]) -> list[Window]:
            return list(pool.map(lambda one: one.window(window_s), contestants))

        laps: dict[str, list[list[float]]] = {}

        def rate(contestants: list[Contestant], name: str) -> float:
            windows = at_once(contestants)
            laps.setdefault(name, []).extend(one.reply["laps_s"] for one in windows)
            return sum(window.rate for window in windows)

        in_step: list[float] = []

        def rate_of_halves(name: str) -> float:
            windows = at_once(halves)
            laps.setdefault(name, []).extend(one.reply["laps_s"] for one in windows)
            apart = sum(window.rate for window in windows)
            in_step.append(apart * share_in_step([(one.reply["laps_s"], one.reply["parts_s"]) for one in windows]))
            return apart

        one, apart, of_halves, on_workers, pipelined = (
            "one sequential training",
            f"{WORKERS} sequential trainings at once",
            f"{WORKERS} of half the size at once",
            f"one training on {WORKERS} workers",
            f"one on {WORKERS} workers with `--pipeline`",
        )
        found = results.interleave(
            {
                one: lambda: rate(alone[:1], one),
                apart: lambda: rate(alone, apart),
                of_halves: lambda: rate_of_halves(of_halves),
                on_workers: lambda: rate([parallel], on_workers),
                pipelined: lambda: rate([pipeline], pipelined),
            },
            rounds,
        )
    waiting = "the same, with a barrier after every rollout and minibatch"
    shown = {name: found[name] for name in (one, apart, of_halves)}
    shown |= {waiting: in_step, on_workers: found[on_workers], pipelined: found[pipelined]}
    quiet_ms = {name: 1e3 * float(np.percentile(np.concatenate(each), UNDISTURBED)) for name, each in laps.items()}
    # Two trainings together make twice the steps in an iteration; two of half the size make the steps of one.
    steps = {apart: WORKERS}
    rows = []
    for name, values in shown.items():
        cells = (results.median_spread(values), results.ratio(values, found[one]), results.ratio(values, in_step))
        quiet = f"{quiet_ms[one] / quiet_ms[name] * steps.get(name, 1):.2f}" if name in quiet_ms else ""
        rows.append([name, f"{cells[0][0]:,.0f}", *(results.format_ratio(*cell) for cell in cells[1:]), quiet])
    body = (
        f"PPO on CartPole-v1, {CARTPOLE_PPO['n_envs']} envs: {rounds} alternating windows of {window_s:g} s each:\n\n"
        + results.table(["", "steps/s", "times one", "times two halves with barriers", "times one, undisturbed"], rows)
    )
    results.publish(
        "ceiling",
        "The limit of two cores",
        body,
        {"steps_per_s": shown, "quiet_ms": quiet_ms},
        results.conditions(before),
        keep=not args.quick,
    )


def share_in_step(trainings: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Speed of independent trainings with imaginary barriers between their parts, as a share of their real speed.

    Args:
        trainings: For each training, the seconds of its iterations and of the parts (rollouts and minibatches) in them.
    """
    paired = list(zip(*(parts for _, parts in trainings), strict=False))
    lost_s = sum(max(parts) - sum(parts) / len(parts) for parts in paired) / len(paired)
    apart_s = sum(sum(laps) / len(parts) for laps, parts in trainings) / len(trainings)
    return apart_s / (apart_s + lost_s)


def _training(name: str, **settings: Any) -> Contestant:
    return Contestant("benchmarks.harness.windows_paceline", {**CARTPOLE_PPO, **settings}, log=f"ceiling-{name}.log")


if __name__ == "__main__":
    main()

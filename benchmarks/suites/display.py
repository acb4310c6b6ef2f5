"""What the live display costs: CartPole with and without it, in alternating windows.

python benchmarks/display.py [--num-workers 0] [--rounds 12] [--window-s 3]

Three answers. The ratio of steps per second is what a user would notice, but on a shared machine it varies by more
than the display costs. The ratio of steps per second of processor time varies less (without workers it is that of
the whole training). And the display's own processor time, in its thread and in `update`, is set against a run of
50,000 steps/s, where every thread competes for the same cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from rich.console import Console

from paceline.config.train_config import TrainConfig
from paceline.measure.progress import Progress
from paceline.measure.record import Goal, Iteration
from paceline.train.budget import RunBudget
from paceline.train.run import Run

PACE = 50_000
"""Steps per second that the promise is about."""
LIMIT = 0.01
KINDS = ("with", "without", "control")
"""The control is without as well: how far its ratio is from one is what the machine adds by itself."""


class Timed(Progress):
    """A display that keeps account of its own processor time."""

    draw_s = 0.0
    update_s = 0.0
    updates = 0

    def update(self, iteration: Iteration) -> None:
        """Take in an iteration, timed."""
        began = time.thread_time()
        super().update(iteration)
        self.update_s += time.thread_time() - began
        self.updates += 1

    def _show(self) -> None:
        super()._show()
        self.draw_s = time.thread_time()  # all of this thread's


def main() -> None:
    """Alternate the windows, print the ratio and the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--window-s", type=float, default=3.0)
    args = parser.parse_args()
    config = TrainConfig.from_flat(env="CartPole-v1", num_workers=args.num_workers, total_timesteps=10**9, quiet=True)
    fps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    per_cpu_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shares, per_update_us = [], []
    with Run(config) as run, open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=120, height=40)
        window(run, console, shown=True, seconds=1.0)  # warm-up
        for number in range(args.rounds):
            for i in range(len(KINDS)):
                kind = KINDS[(i + number) % len(KINDS)]  # each comes first as often
                steps, display, took, cpu_s = window(run, console, shown=kind == "with", seconds=args.window_s)
                fps[kind].append(steps / took)
                per_cpu_s[kind].append(steps / cpu_s)
                if kind == "with":
                    shares.append(display.draw_s / took)
                    per_update_us.append(display.update_s / display.updates * 1e6)
    draw, update_us = statistics.mean(shares), statistics.mean(per_update_us)  # means: rare costs count too
    cost = draw + update_us * 1e-6 * PACE / config.batch_steps
    measured = {"steps/s": fps}
    if args.num_workers == 0:  # otherwise most of the work is in other processes
        measured["steps per second of processor time"] = per_cpu_s
    for what, found in measured.items():
        print(f"{what}: " + ", ".join(f"{kind} {statistics.median(found[kind]):,.0f}" for kind in KINDS))
        for kind in ("with", "control"):
            ratios = [a / b for a, b in zip(found[kind], found["without"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            doubt = "  (inconclusive: run again on a quieter machine)" if high - low > 0.1 else ""
            print(f"  {kind} / without: median {middle:.3f}, quartiles {low:.3f} to {high:.3f}{doubt}")
    print(f"drawing takes {draw:.2%} of one core, an update {update_us:.0f} us")
    print(
        f"at {PACE:,} steps/s: {cost:.2%} of one core; the limit is {LIMIT:.0%}: {'kept' if cost < LIMIT else 'BROKEN'}"
    )


def window(run: Run, console: Console, *, shown: bool, seconds: float) -> tuple[int, Timed, float, float]:
    """Train for a while; steps, the display, and how much time and processor time it took."""
    training: Any = run.training
    bookkeeping: Any = run._bookkeeping
    budget = RunBudget(training.tracker, training.clock, None, None, training.clock.elapsed_s + seconds)
    steps, began, cpu_s = training.tracker.steps, time.perf_counter(), time.process_time()
    with Timed(run._info(), Goal(steps=10**9), quiet=not shown, console=console, live=True) as display:
        bookkeeping.begin(budget, display)
        training.driver.train(budget, bookkeeping)
    took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    return training.tracker.steps - steps, display, took, cpu_s


if __name__ == "__main__":
    main()

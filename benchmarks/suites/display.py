"""What does the live display cost? CartPole with and without it, in alternating windows.

    make bench-display

It prints three answers. The ratio of steps/s is what a user would notice, but on a shared machine it varies by more
than the display costs. The ratio of steps per second of CPU time varies less; it is printed without workers only,
because then the CPU time of this process is that of the whole training. The third answer is the CPU time of the
display itself, in its thread and in `update`, as a share of one core at 50,000 steps/s.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from rich.console import Console

from benchmarks.harness.settings import SPEED_PPO
from paceline.config.train_config import TrainConfig
from paceline.measure.progress import Display, Progress
from paceline.measure.record import Goal, Iteration
from paceline.train.budget import RunBudget
from paceline.train.run import Run

PACE = 50_000
"""The limit applies to a run at this many steps/s."""
LIMIT = 0.01
"""Share of one core that the display may take."""
KINDS = ("with", "without", "control")
"""`control` is another window without the display: the distance of its ratio from 1 is the noise of the machine."""


class Timed(Progress):
    """A display that measures its own CPU time."""

    draw_s = 0.0
    update_s = 0.0
    updates = 0

    def update(self, iteration: Iteration) -> None:
        """As in `Progress`; adds its CPU time to `update_s`."""
        began = time.thread_time()
        super().update(iteration)
        self.update_s += time.thread_time() - began
        self.updates += 1

    def _show(self) -> None:
        super()._show()
        self.draw_s = time.thread_time()  # CPU time of the display's thread since it started


def main() -> None:
    """Measure in alternating windows; print the ratios and the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=12, help="at least 2")
    parser.add_argument("--window-s", type=float, default=3.0)
    args = parser.parse_args()
    own = {"n_envs": 32, "num_workers": args.num_workers, "total_timesteps": 10**9, "quiet": True}
    config = TrainConfig.from_flat(env="CartPole-v1", **SPEED_PPO, **own)
    fps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    per_cpu_s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shares, per_update_us = [], []
    with Run(config) as run, open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, force_terminal=True, width=120, height=40)
        window(run, console, shown=True, seconds=1.0)  # warm-up
        for number in range(args.rounds):
            for i in range(len(KINDS)):
                kind = KINDS[(i + number) % len(KINDS)]  # each kind comes first equally often
                steps, display, took, cpu_s = window(run, console, shown=kind == "with", seconds=args.window_s)
                fps[kind].append(steps / took)
                per_cpu_s[kind].append(steps / cpu_s)
                if kind == "with":
                    shares.append(display.draw_s / took)
                    per_update_us.append(display.update_s / display.updates * 1e6)
    draw, update_us = (
        statistics.mean(shares),
        statistics.mean(per_update_us),
    )  # means, because rare expensive calls count, too
    cost = draw + update_us * 1e-6 * PACE / config.batch_steps
    measured = {"steps/s": fps}
    if args.num_workers == 0:  # otherwise most of the work is in other processes
        measured["steps per second of CPU time"] = per_cpu_s
    for what, found in measured.items():
        print(f"{what}: " + ", ".join(f"{kind} {statistics.median(found[kind]):,.0f}" for kind in KINDS))
        for kind in ("with", "control"):
            ratios = [a / b for a, b in zip(found[kind], found["without"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            doubt = "  (inconclusive: run again on a quieter machine)" if high - low > 0.1 else ""
            print(f"  {kind} / without: median {middle:.3f}, quartiles {low:.3f} to {high:.3f}{doubt}")
    print(f"drawing takes {draw:.2%} of one core, an update {update_us:.0f} us")
    print(
        f"at {PACE:,} steps/s: {cost:.2%} of one core; the limit is {LIMIT:.0%}: {'met' if cost < LIMIT else 'MISSED'}"
    )


def window(run: Run, console: Console, *, shown: bool, seconds: float) -> tuple[int, Timed, float, float]:
    """Train for `seconds`; returns steps, the display, wall time and CPU time."""
    training: Any = run.training
    bookkeeping: Any = run._bookkeeping
    budget = RunBudget(training.tracker, training.clock, Goal(seconds=training.clock.elapsed_s + seconds))
    steps, began, cpu_s = training.tracker.steps, time.perf_counter(), time.process_time()
    kind: Display = "panel" if shown else "none"
    with Timed(run._info(), Goal(steps=10**9), display=kind, console=console, live=True) as display:
        bookkeeping.begin(budget, display)
        training.driver.train(budget, bookkeeping)
    took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    return training.tracker.steps - steps, display, took, cpu_s


if __name__ == "__main__":
    main()

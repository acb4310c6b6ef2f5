"""Where does each microsecond of a step go? CartPole-v1, 32 envs x 128 steps, sequential and on 2 workers.

    make bench-waterfall

A real training runs, and its clock gives the time of each phase. Probes measure the parts of a phase between the
windows of the training: they make the same calls on the same arrays, in as many processes as the training uses. The
time of a phase beyond its measured parts has a bar of its own, so that all bars add up to the total.

    clock       |------- env -------|------- inference -------|- wait -|--------- learn ---------|- sync -|
    probes       step resets | loop   forward sample write | …          prepare gather forward … |
"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.harness import results
from benchmarks.harness.probes import DriverProbe, Probe, Probes, plan_of
from benchmarks.harness.settings import SPEED_PPO
from paceline.config.train_config import TrainConfig
from paceline.insight.windows import iterate
from paceline.memory.shared import Arena
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Runtime, run_all
from paceline.train.build import build
from paceline.train.start_up import PRELOAD
from paceline.train.training import Training

SIDES = {"sequential": 0, "2 workers": 2}
PHASES = ("env", "inference", "wait", "learn", "sync")
COLOURS = {
    "env": "#009E73", "inference": "#0072B2", "wait": "#999999", "learn": "#D55E00", "sync": "#CC79A7", "": "#555555",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One bar."""

    name: str
    phase: str
    us: float
    """Microseconds of wall time per env step."""
    bare: bool = False
    """Whether it is part of the physical limit: stepping envs, and the network's arithmetic."""


class Side:
    """One training with its probes.

    Args:
        workers: Processes of it; 0 is sequential.
        stack: Closes the training and the probes.
    """

    def __init__(self, workers: int, stack: ExitStack) -> None:
        self.training: Training = build(
            TrainConfig.from_flat(env="CartPole-v1", n_envs=32, num_workers=workers, quiet=True, **SPEED_PPO)
        )
        stack.callback(self.training.close)
        self.training.rollouts.reset()
        iterate(self.training)  # warm-up: loads kernels, touches every page
        plan, self._processes = plan_of(self.training), max(1, workers)
        arena = Arena.create(plan.fields(len(self.training.weights.vector), workers))
        stack.callback(arena.close)
        arena["weights"][:] = self.training.weights.vector.numpy()
        self._probes: Runtime[Probe] = (
            ProcessRuntime(Probes(plan), arena, plan.base.shape.groups, workers, preload=PRELOAD)
            if workers
            else InlineRuntime(Probes(plan), arena, plan.base.shape.groups)
        )
        stack.callback(self._probes.close)
        run_all(self._probes, Probe.begin)
        self._driver = DriverProbe(self.training)
        self.measured: list[dict[str, float]] = []
        self.phases: Counter[str] = Counter()
        """Seconds by phase, and `wall`, over all windows."""
        self.steps = self.episodes = 0

    def turn(self, seconds: float) -> float:
        """Measure a window of training and then its parts; returns steps per second."""
        training = self.training
        mark, counted = training.clock.snapshot(), (training.tracker.steps, training.tracker.episodes)
        began = perf_counter()
        while perf_counter() - began < seconds:
            iterate(training)
        wall_s = perf_counter() - began
        self.phases.update({**training.clock.snapshot().since(mark).seconds, "wall": wall_s})
        steps = training.tracker.steps - counted[0]
        self.steps += steps
        self.episodes += training.tracker.episodes - counted[1]
        replies = run_all(self._probes, Probe.measure, seconds / 2)
        both = {name: float(np.mean([reply[name] for reply in replies])) for name in replies[0]}
        self.measured.append(both | self._driver.measure(seconds / 4))
        return steps / wall_s

    def parts(self) -> list[Part]:
        """The bars in the order in which a step passes them; they add up to the wall time per step."""
        config, shards = self.training.config, plan_of(self.training).shards
        # Means instead of medians, because the phases are means: occasional disturbances are then in both.
        took = {name: float(np.mean([one[name] for one in self.measured])) * 1e6 for name in self.measured[0]}
        batch, n_envs = config.batch_steps, config.n_envs
        phase = {name: self.phases[name] / self.steps * 1e6 for name in (*PHASES, "wall")}
        minibatches = batch // self._driver.minibatch * config.training.n_epochs
        # All processes work at the same time, so the work of one process costs its share of the wall time.
        row = {name: took[name] / n_envs for name in ("step", "forward", "sample", "write")}
        resets = took["resets"] * self.episodes / self.steps / self._processes
        hands = min(self._processes, shards)
        shard = {
            name: took[name] * shards * minibatches / hands / batch
            for name in ("gather", "learn forward", "loss", "backward")
        }
        driver = {
            "prepare": took["prepare"] / batch,
            "order": took["order"] * config.training.n_epochs / batch,
            "optimise": took["optimise"] * minibatches / batch,
        }
        in_learn = sum(shard.values()) + sum(driver.values())
        return [
            Part("env.step itself", "env", row["step"], bare=True),
            Part("resets", "env", resets, bare=True),
            Part("Paceline's loop around env.step", "env", phase["env"] - row["step"] - resets),
            Part("policy forward", "inference", row["forward"], bare=True),
            Part("sampling actions", "inference", row["sample"]),
            Part("writing the row", "inference", row["write"]),
            Part(
                "random numbers, Paceline's loop",
                "inference",
                phase["inference"] - row["forward"] - row["sample"] - row["write"],
            ),
            Part("wait at the barrier", "wait", phase["wait"]),
            Part("prepare: advantages", "learn", driver["prepare"]),
            Part("shuffle and normalise", "learn", driver["order"]),
            Part("gather rows, store gradient", "learn", shard["gather"]),
            Part("learner's forward", "learn", shard["learn forward"], bare=True),
            Part("loss and its gradient", "learn", shard["loss"]),
            Part("learner's backward", "learn", shard["backward"], bare=True),
            Part("sum, clip, Adam", "learn", driver["optimise"]),
            Part("hand-over of shards, statistics", "learn", phase["learn"] - in_learn),
            Part("publish, count episodes", "sync", phase["sync"]),
            Part("the rest", "", phase["wall"] - sum(phase[name] for name in PHASES)),
        ]


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=9)
    parser.add_argument(
        "--window-s",
        type=float,
        default=2.0,
        help="seconds of a window of training; measuring its parts takes three quarters of that",
    )
    args = parser.parse_args()
    before = results.MachineLoad.now()
    with ExitStack() as stack:
        sides = {name: Side(workers, stack) for name, workers in SIDES.items()}
        window_s = 0.4 if args.quick else args.window_s
        turns = {name: lambda side=side: side.turn(window_s) for name, side in sides.items()}  # type: ignore[misc]
        rates = results.interleave(turns, 2 if args.quick else args.rounds)
        parts = {name: side.parts() for name, side in sides.items()}
    report(parts, rates, results.conditions(before), keep=not args.quick)


def report(parts: dict[str, list[Part]], rates: dict[str, list[float]], machine: dict[str, Any], *, keep: bool) -> None:
    """Compute totals and limits, and publish."""
    totals = {name: sum(part.us for part in side) for name, side in parts.items()}
    limits = {name: sum(part.us for part in side if part.bare) for name, side in parts.items()}
    rows = [
        [("**" + line[0].name + "**") if line[0].bare else line[0].name, *(f"{part.us:.2f}" for part in line)]
        for line in zip(*parts.values(), strict=True)
    ]
    rows.append(["total", *(f"{total:.2f}" for total in totals.values())])
    rows.append(["**physical limit**: the bold lines", *(f"{limit:.2f}" for limit in limits.values())])
    rows.append(["the limit's share of the total", *(f"{limits[name] / totals[name]:.0%}" for name in totals)])
    body = (
        "Microseconds of wall time per env step, CartPole-v1, 32 envs x 128 steps, MLP 64x64, 4 epochs:\n\n"
        + results.table(["", *parts], rows)
        + "\n\nThe limit is stepping the envs and the arithmetic of the network on the same number of cores, without "
        "any overhead, measured in the same run."
    )
    result = {
        "parts": {name: [asdict(part) for part in side] for name, side in parts.items()},
        "total_us": totals,
        "limit_us": limits,
        "steps_per_s": rates,
    }
    folder = results.publish("waterfall", "Time per step by part", body, result, machine, keep=keep)
    picture(parts, folder / "waterfall.png")


def picture(parts: dict[str, list[Part]], path: Path) -> None:
    """One panel per training: each bar begins where the one above it ends."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(parts), figsize=(13, 6.4), sharey=True, sharex=True)
    widest = max(sum(part.us for part in side) for side in parts.values())
    for axis, (name, side) in zip(axes, parts.items(), strict=True):
        at, total = 0.0, sum(part.us for part in side)
        limit = sum(part.us for part in side if part.bare)
        bars = [(part.name, at := at + part.us, part.us, COLOURS[part.phase], part.bare) for part in side]
        bars += [("total", total, total, "#222222", False), ("physical limit", limit, limit, "#222222", True)]
        for y, (_, end, us, colour, bare) in enumerate(bars):
            axis.barh(y, us, left=end - us, color=colour, alpha=1.0 if bare else 0.55, height=0.72)
            axis.annotate(
                f"{us:.2f}", (max(end, end - us), y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
            )
        axis.set_yticks(range(len(bars)), [bar[0] for bar in bars])
        axis.set_ylim(len(bars) - 0.4, -0.6)
        axis.set_xlim(0, widest * 1.12)
        axis.set_title(f"{name}: {total:.1f} µs per step, {1e6 / total:,.0f} steps/s", loc="left", fontsize=11)
        axis.set_xlabel("µs of wall time per env step")
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", color="#E4E4E4")
        axis.set_axisbelow(True)
        axis.spines[["top", "right", "left"]].set_visible(False)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[phase]) for phase in PHASES]
    figure.legend(
        handles, PHASES, frameon=False, loc="lower center", ncols=len(PHASES), fontsize=9.5, handlelength=1.0,
        title="phase; full colour: part of the physical limit", title_fontsize=9.5,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()

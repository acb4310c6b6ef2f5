"""Where each microsecond of a step goes: CartPole-v1, 32 envs x 128 steps, sequential and on 2 workers.

    make bench-waterfall

Training runs as it is, and its clock says what each phase takes. What a phase is made of is measured beside it, in
turns, by probes that run the same calls on the same arrays, in as many processes at once as training uses. What a
phase takes beyond its measured parts is shown under a name of its own, so that everything adds up to the total.

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
import results
from probes import DriverProbe, Probe, Probes

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
    """Whether no program could do without it: stepping envs, and the network's arithmetic."""


class Side:
    """One training with its probes. Close the stack.

    Args:
        workers: Processes of it; 0 is sequential.
        stack: Closes all of it.
    """

    def __init__(self, workers: int, stack: ExitStack) -> None:
        self.training: Training = build(TrainConfig.from_flat(env="CartPole-v1", num_workers=workers, quiet=True))
        stack.callback(self.training.close)
        self.training.rollouts.reset()
        iterate(self.training)  # loads kernels, touches every page
        program, self._processes = self.training.program, max(1, workers)
        arena = Arena.create(program.fields(len(self.training.weights.vector), workers))
        stack.callback(arena.close)
        arena["weights"][:] = self.training.weights.vector.numpy()
        self._probes: Runtime[Probe] = (
            ProcessRuntime(Probes(program), arena, program.shape.groups, workers, preload=PRELOAD)
            if workers
            else InlineRuntime(Probes(program), arena, program.shape.groups)
        )
        stack.callback(self._probes.close)
        run_all(self._probes, Probe.begin)
        self._driver = DriverProbe(self.training)
        self.measured: list[dict[str, float]] = []
        self.phases: Counter[str] = Counter()
        """Seconds by phase, and `wall`, over all windows."""
        self.steps = self.episodes = 0

    def turn(self, seconds: float) -> float:
        """A window of training, and the parts right after it; returns steps per second."""
        training = self.training
        mark, counted = training.clock.snapshot(), (training.tracker.steps, training.tracker.episodes)
        began = perf_counter()
        while perf_counter() - began < seconds:
            iterate(training)
        wall_s = perf_counter() - began
        self.phases.update({**training.clock.delta(mark).seconds, "wall": wall_s})
        steps = training.tracker.steps - counted[0]
        self.steps += steps
        self.episodes += training.tracker.episodes - counted[1]
        answers = run_all(self._probes, Probe.measure, seconds / 2)
        both = {name: float(np.mean([answer[name] for answer in answers])) for name in answers[0]}
        self.measured.append(both | self._driver.measure(seconds / 4))
        return steps / wall_s

    def parts(self) -> list[Part]:
        """The bars, in the order of a step's way; they add up to the wall time per step."""
        config, program = self.training.config, self.training.program
        # Means, as the phases are: what disturbs the machine now and then is to be found in both.
        took = {name: float(np.mean([one[name] for one in self.measured])) * 1e6 for name in self.measured[0]}
        batch, n_envs = config.batch_steps, config.n_envs
        phase = {name: self.phases[name] / self.steps * 1e6 for name in (*PHASES, "wall")}
        minibatches = batch // self._driver.minibatch * config.training.n_epochs
        # All processes work at the same time, so what one of them does costs its share of the wall time.
        row = {name: took[name] / n_envs for name in ("step", "forward", "sample", "write")}
        resets = took["resets"] * self.episodes / self.steps / self._processes
        hands = min(self._processes, program.shards)
        shard = {
            name: took[name] * program.shards * minibatches / hands / batch
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
            Part("our loop around env.step", "env", phase["env"] - row["step"] - resets),
            Part("policy forward", "inference", row["forward"], bare=True),
            Part("sampling actions", "inference", row["sample"]),
            Part("writing the row", "inference", row["write"]),
            Part(
                "noise, our loop",
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
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=9)
    parser.add_argument("--window-s", type=float, default=2.0, help="of training; its parts take three quarters of it")
    args = parser.parse_args()
    before = results.Calm.now()
    with ExitStack() as stack:
        sides = {name: Side(workers, stack) for name, workers in SIDES.items()}
        window_s = 0.4 if args.quick else args.window_s
        turns = {name: lambda side=side: side.turn(window_s) for name, side in sides.items()}  # type: ignore[misc]
        rates = results.in_turns(turns, 2 if args.quick else args.rounds)
        parts = {name: side.parts() for name, side in sides.items()}
    report(parts, rates, results.conditions(before), keep=not args.quick)


def report(parts: dict[str, list[Part]], rates: dict[str, list[float]], machine: dict[str, Any], *, keep: bool) -> None:
    """Sum up and publish."""
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
        + "\n\nThe limit is stepping the envs and the arithmetic of the network on as many cores, with nothing around "
        "them and nothing lost, measured in the same run."
    )
    result = {
        "parts": {name: [asdict(part) for part in side] for name, side in parts.items()},
        "total_us": totals,
        "limit_us": limits,
        "steps_per_s": rates,
    }
    folder = results.publish("waterfall", "Where each microsecond goes", body, result, machine, keep=keep)
    picture(parts, folder / "waterfall.png")


def picture(parts: dict[str, list[Part]], path: Path) -> None:
    """One panel per side: each bar begins where the one above it ends."""
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
        title="phase; in full colour what no program can do without", title_fontsize=9.5,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()

"""How do steps/s and memory grow with envs and workers?

    make bench-scaling

Every cell trains in a process of its own while no other cell runs: memory is proportional (PSS), so other processes
that map the same libraries would make it look smaller. The order of the cells alternates from round to round.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import results
from benchmarks.harness.contestants import Contestant
from benchmarks.harness.settings import CARTPOLE_PPO
from paceline.config.train_config import TrainConfig
from paceline.measure.machine import tree_memory_mb
from paceline.memory.shards import Shards
from paceline.memory.slot_shape import SlotShape
from paceline.train.recipes import env_recipe

ENVS = (8, 32, 128, 512)
WORKERS = (0, 1, 2, 4, 8)
WIDE = {"env": "paceline/Busy-v0", "n_epochs": 1, "ours": {"env_kwargs": {"cpu_ms": 0, "obs_size": 1024}}}
"""An env with observations of 4 kB, so that slots take more memory than env objects. Only its memory is reported."""
WIDE_WORKERS = (0, 2, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A number of envs and workers."""

    n_envs: int
    workers: int
    wide: bool = False

    def settings(self) -> dict[str, Any]:
        """The settings that windows_paceline.py reads."""
        settings = {**CARTPOLE_PPO, **(WIDE if self.wide else {}), "n_envs": self.n_envs}
        return {**settings, "ours": {**settings.get("ours", {}), "num_workers": self.workers}}

    def config(self) -> TrainConfig:
        """The same settings as a config."""
        settings = self.settings()
        names = ("env", "n_envs", "n_steps")
        return TrainConfig.from_flat(**settings["ours"], **{name: settings[name] for name in names})

    def slot_bytes(self) -> int:
        """Bytes of the slots of all envs, including what learning adds to each step."""
        config = self.config()
        size, steps = config.group_size(image=False), config.training.n_steps
        shape = SlotShape(env_recipe(config).probe(), steps, self.n_envs // size, size)
        fields = [*shape.fields(), *Shards.fields(config.batch_steps, 0, 0)]
        return sum(one.nbytes for one in fields if not one.sparse)


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory over envs for one number of workers: a straight line through the medians."""

    fixed_mb: float
    slope_kb: float


def growth(memory_mb: dict[int, float]) -> Growth:
    """Fit the line to memory by number of envs."""
    slope, fixed = np.polyfit(list(memory_mb), list(memory_mb.values()), 1)
    return Growth(float(fixed), float(slope * 1024))


def env_kb(cell: Cell) -> float:
    """Memory of one env, made and reset, without a training around it."""
    recipe = env_recipe(cell.config())
    recipe.make().reset(seed=0)  # loads what all envs share
    before = tree_memory_mb()
    envs = [recipe.make() for _ in range(ENVS[-1])]
    for env in envs:
        env.reset(seed=0)
    return (tree_memory_mb() - before) * 1024 / len(envs)


def measure(cell: Cell, window_s: float, found: dict[Cell, dict[str, list[float]]]) -> float:
    """Start a training, measure one window, and end it; appends to `found`."""
    log = f"scaling-{cell.n_envs}-{cell.workers}.log"
    with Contestant("benchmarks.harness.windows_paceline", cell.settings(), log=log) as contestant:
        contestant.read_reply()
        contestant.window(0.0)  # warm-up of one iteration: loads kernels, touches every page
        rate = contestant.window(window_s).rate
        found.setdefault(cell, {"steps_per_s": [], "memory_mb": []})
        found[cell]["steps_per_s"].append(rate)
        found[cell]["memory_mb"].append(contestant.peak_memory_mb)
    print(f"{cell}: {rate:,.0f} steps/s, {contestant.peak_memory_mb:,.0f} MB", file=sys.stderr, flush=True)
    return rate


def main() -> None:
    """Measure, print and store the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    results.add_size_flags(parser, rounds=3)
    parser.add_argument("--window-s", type=float, default=3.0, help="at least one iteration")
    args = parser.parse_args()
    envs, workers = ((8, 128), (0, 2)) if args.quick else (ENVS, WORKERS)
    wide_workers = (0, 2) if args.quick else WIDE_WORKERS
    cells = [Cell(n_envs=n, workers=w) for n in envs for w in workers]
    cells += [Cell(n_envs=n, workers=w, wide=True) for n in envs for w in wide_workers]
    before = results.MachineLoad.now()
    found: dict[Cell, dict[str, list[float]]] = {}
    window_s = 0.2 if args.quick else args.window_s
    # One iteration is enough for the wide env, because only its memory is reported.
    turns = {cell: partial(measure, cell, 0.0 if cell.wide else window_s, found) for cell in cells}
    results.interleave(turns, 1 if args.quick else args.rounds)
    objects_kb = {wide: env_kb(Cell(n_envs=8, workers=0, wide=wide)) for wide in (False, True)}
    report(found, objects_kb, results.conditions(before), keep=not args.quick)


def report(
    found: dict[Cell, dict[str, list[float]]], objects_kb: dict[bool, float], machine: dict[str, Any], *, keep: bool
) -> None:
    """Compute medians and lines, and publish."""
    medians = {
        cell: {name: results.median_spread(values)[0] for name, values in one.items()} for cell, one in found.items()
    }
    rates = {(cell.n_envs, cell.workers): one["steps_per_s"] for cell, one in medians.items() if not cell.wide}
    envs, workers = ([*dict.fromkeys(sizes)] for sizes in zip(*rates, strict=True))
    rows = [[_workers(w), *(f"{rates[n, w]:,.0f}" for n in envs)] for w in workers]
    memory = []
    for wide, w in dict.fromkeys((cell.wide, cell.workers) for cell in medians):
        mine = {cell: one for cell, one in medians.items() if (cell.wide, cell.workers) == (wide, w)}
        line = growth({cell.n_envs: one["memory_mb"] for cell, one in mine.items()})
        largest = max(mine, key=lambda cell: cell.n_envs)
        slots_kb, own_kb = largest.slot_bytes() / largest.n_envs / 1024, objects_kb[wide]
        numbers = (line.fixed_mb, line.slope_kb, slots_kb, own_kb, line.slope_kb - slots_kb - own_kb)
        name = "4 kB of observation" if wide else "CartPole-v1"
        memory.append([f"{name}, {_workers(w)}", *(f"{number:,.0f}" for number in numbers)])
    body = (
        "Steps/s of PPO on CartPole-v1, 128 steps a rollout, minibatches of 1024:\n\n"
        + results.table(["", *(f"{n} envs" for n in envs)], rows)
        + "\n\nMemory of all processes, as a fixed part and a part per env. The env itself is measured separately, "
        "without a training around it. The rest is the actions of unfinished episodes, buffers of the learner, and "
        "freed memory that the allocator keeps:\n\n"
        + results.table(["", "fixed MB", "kB per env", "its slots", "the env itself", "the rest"], memory)
    )
    result = {
        "cells": [
            {"n_envs": c.n_envs, "workers": c.workers, "wide": c.wide, "slot_bytes": c.slot_bytes(), **one}
            for c, one in found.items()
        ],
        "env_kb": {"cartpole": objects_kb[False], "wide": objects_kb[True]},
    }
    folder = results.publish("scaling", "Steps/s and memory over envs and workers", body, result, machine, keep=keep)
    picture(result["cells"], folder / "scaling.png")


def _workers(count: int) -> str:
    return f"{count} worker{'s' if count > 1 else ''}" if count else "sequential"


def picture(cells: list[dict[str, Any]], path: Path) -> None:
    """Plot steps/s and memory over envs, a line per number of workers, with the memory of the slots alone dotted."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (speed, memory) = plt.subplots(1, 2, figsize=(12, 4.8))
    for axis, wide, name in ((speed, False, "steps_per_s"), (memory, True, "memory_mb")):
        mine = [cell for cell in cells if cell["wide"] == wide]
        workers = [*dict.fromkeys(cell["workers"] for cell in mine)]
        ends = []
        for colour, count in zip(plt.colormaps["viridis"](np.linspace(0.0, 0.8, len(workers))), workers, strict=True):
            line = sorted(
                (c["n_envs"], *results.median_spread(c[name]), c["slot_bytes"]) for c in mine if c["workers"] == count
            )
            n, middle, spread, slots = np.array(line).T
            axis.errorbar(n, middle, yerr=spread, color=colour, marker="o", ms=4, lw=1.8)
            if wide:
                axis.plot(n, middle[0] + (slots - slots[0]) / 2**20, color=colour, ls=":", lw=1.5)
            ends.append((float(middle[-1]), _workers(count), colour))
        _label_ends(axis, n[-1], ends)
        if not wide:  # linear for memory, so that it shows as a straight line
            axis.set_xscale("log", base=2)
        axis.set_xticks(n, [f"{x:.0f}" for x in n])
        axis.minorticks_off()
        axis.set_xlim(n[0] * 0.85, n[-1] * (1.3 if wide else 3.6))
        axis.set_ylim(0, 1.15 * max(end[0] for end in ends))
        axis.set_xlabel("envs")
        axis.grid(axis="y", color="#E4E4E4")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    speed.set_title("steps/s, CartPole-v1", loc="left", fontsize=11)
    speed.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    memory.set_title("MB of all processes, 4 kB of observation (dotted: slots alone)", loc="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _label_ends(axis: Any, x: float, ends: list[tuple[float, str, Any]]) -> None:
    """Label each line at its right end, with labels moved apart where lines end close together."""
    gap = 0.055 * max(y for y, _, _ in ends)
    at = -np.inf
    for y, text, colour in sorted(ends, key=lambda end: end[0]):
        at = max(y, at + gap)
        axis.annotate(text, (x, at), xytext=(8, 0), textcoords="offset points", color=colour, va="center", fontsize=10)


if __name__ == "__main__":
    main()

"""Measures sequential training, parallel training and the machine's limit (bare env loops) in one process.

Windows alternate (limit, sequential, parallel, limit, ...), so that noise from other programs affects all three alike.
The result is the median of the ratios within each round, with their spread. A fourth window of each round times the
learner alone, with the current and with other settings.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from paceline.config.train_config import TrainConfig
from paceline.envs.block import EnvBlock
from paceline.envs.make_block import make_block
from paceline.envs.thread_per_env import ThreadPerEnv
from paceline.insight.learner_probe import LearnerProbe, nothing_to_try
from paceline.insight.learner_settings import LearnerSpeeds
from paceline.insight.windows import iterate, phase_shares, ratio, window
from paceline.measure.cpu import CpuSupply
from paceline.measure.machine import SystemSampler, tree_memory_mb
from paceline.memory.shared import Arena
from paceline.memory.slots import Slots
from paceline.memory.worker_status import BEAT
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Share, run_all
from paceline.system.threads import core_budget
from paceline.train.build import build
from paceline.train.start_up import PRELOAD
from paceline.train.training import Training
from paceline.train.worker_recipe import WorkerRecipe


@dataclass(frozen=True, slots=True)
class Bench:
    """Steps per second, one entry per round."""

    num_workers: int
    limit: tuple[float, ...]
    sequential: tuple[float, ...]
    parallel: tuple[float, ...]
    phases: dict[str, dict[str, float]]
    """Share of the time by phase, for "sequential" and for "parallel"."""
    memory_mb: dict[str, float]
    learner: LearnerSpeeds | None = None
    """Speeds of the parallel side's learner with its own and with other settings; None if they were not measured."""
    supply: CpuSupply | None = None
    """CPU time that the rounds got."""

    def ratio(self, above: str, below: str) -> tuple[float, float]:
        """Median of `above / below` over the rounds, and its spread (half the range between the quartiles)."""
        return ratio(getattr(self, above), getattr(self, below))

    def json(self) -> dict[str, Any]:
        """The result as plain values."""
        speedup, spread = self.ratio("parallel", "sequential")
        of_limit, of_limit_spread = self.ratio("parallel", "limit")

        def side(name: str, windows: tuple[float, ...]) -> dict[str, Any]:
            rate = float(np.median(windows))
            return {"steps_per_s": rate, "windows": list(windows), "memory_mb": self.memory_mb[name]}

        return {
            "sequential": side("sequential", self.sequential),
            "parallel": {**side("parallel", self.parallel), "num_workers": self.num_workers},
            "speedup": speedup,
            "speedup_spread": spread,
            "limit_steps_per_s": float(np.median(self.limit)),
            "limit_windows": list(self.limit),
            "share_of_limit": of_limit,
            "share_of_limit_spread": of_limit_spread,
            "phases": self.phases["parallel"],
            "phases_sequential": self.phases["sequential"],
            "shortage": "" if self.supply is None else self.supply.shortage(),
            "learner": None if self.learner is None else self.learner.json(self.phases["parallel"]["learn"]),
        }


class BareLoop:
    """Steps envs with random actions; no policy, no learning: the upper limit of training speed on this machine."""

    def __init__(self, recipe: WorkerRecipe, arena: Arena, share: Share) -> None:
        shape = recipe.shape
        n = share.groups * shape.group_size
        threads, setup = recipe.threads(n)[0], recipe.block_setup(arena, share)
        # For envs that wait (I/O, sleep), the fastest way is one free-running thread per env.
        self._threads = ThreadPerEnv(setup) if threads == n > 1 and recipe.single else None
        self._envs: EnvBlock = self._threads or make_block(setup, threads)
        self._rows = Slots(arena, shape).rows(share.first_group, share.groups)
        self._beat = arena["heartbeat"][share.worker]
        rng = np.random.default_rng(share.worker)
        space = shape.spec.action_space
        space.seed(int(rng.integers(2**31)))
        count = len(self._rows[0].reward)
        start = shape.spec.action.start
        self._actions = [
            np.stack([np.asarray(space.sample()) - start for _ in range(count)]).astype(shape.spec.action.dtype)
            for _ in range(64)
        ]
        self._envs.reset(self._rows[0])

    def spin(self, seconds: float) -> tuple[int, float]:
        """Step all envs for about this long; returns the number of steps and the seconds they took."""
        row, after = self._rows[0], self._rows[1]
        began, rows = perf_counter(), 0
        if self._threads is not None:
            loop = partial(self._spin_one, self._threads, began + seconds)
            return sum(self._threads.each(loop)), perf_counter() - began
        while perf_counter() - began < seconds:
            self._envs.step(self._actions[rows % len(self._actions)], row, after)
            self._beat[BEAT] += 1
            rows += 1
        return rows * len(row.reward), perf_counter() - began

    def _spin_one(self, threads: ThreadPerEnv, end: float, i: int) -> int:
        """In the thread of env i: step it until the time `end`; returns the number of steps."""
        own, step, line, steps = slice(i, i + 1), threads.envs[i].step, threads.lines[i], 0
        row, after = self._rows[0].at(own), self._rows[1].at(own)
        while perf_counter() < end:
            step(self._actions[steps % len(self._actions)][own], row, after)
            line[BEAT] += 1
            steps += 1
        return steps

    def close(self) -> None:
        """Close the envs."""
        self._envs.close()


def bench(
    config: TrainConfig,
    *,
    num_workers: int | None,
    rounds: int,
    window_s: float,
    learner: bool = True,
    tick: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Build both sides, measure them in alternating windows and return the rates.

    Args:
        config: What to train; its worker count and budget are ignored.
        num_workers: Workers of the parallel side. None: one per core, at most one per group of envs.
        rounds: Windows of each kind.
        window_s: Seconds per window; a window has at least one iteration.
        learner: Whether to also time other settings of the learner, if the config has any to try.
        tick: Called with a progress message at every stage.
    """
    sides: dict[str, Training] = {}
    memory: dict[str, float] = {}
    own_mb, workers = tree_memory_mb(), 0  # memory of this process before either side starts, counted for both
    with ExitStack() as undo:
        for name in ("sequential", "parallel"):
            tick(f"starting {name}")
            before_mb = tree_memory_mb()
            sides[name] = training = build(config.merge(num_workers=workers))
            undo.callback(training.close)
            training.rollouts.reset()
            iterate(training)  # warm-up: the first iteration loads kernels and touches every page
            memory[name] = own_mb + tree_memory_mb() - before_mb
            workers = num_workers or min(core_budget(), training.plan.base.shape.groups)
        limit = _limit(sides["parallel"], workers, undo)
        probe = None
        if learner and nothing_to_try(sides["parallel"]) is None:
            probe = undo.enter_context(closing(LearnerProbe(sides["parallel"])))
        rates: dict[str, list[float]] = {"limit": [], "sequential": [], "parallel": []}
        system = SystemSampler()
        marks = {name: side.clock.snapshot() for name, side in sides.items()}
        for number in range(rounds):
            tick(f"round {number + 1} of {rounds}")
            rates["limit"].append(sum(steps / seconds for steps, seconds in run_all(limit, BareLoop.spin, window_s)))
            for name, training in sides.items():
                rates[name].append(window(partial(iterate, training), window_s))
            if probe is not None:
                probe.round(window_s)
        system.sample(force=True)
        return Bench(
            workers,
            tuple(rates["limit"]),
            tuple(rates["sequential"]),
            tuple(rates["parallel"]),
            {name: phase_shares(side.clock, marks[name]) for name, side in sides.items()},
            memory,
            None if probe is None else probe.speeds(),
            system.supply(),
        )


def _limit(training: Training, num_workers: int, undo: ExitStack) -> ProcessRuntime[BareLoop]:
    """Start one bare loop per worker of the parallel side."""
    recipe = training.plan.base
    workers = max(1, num_workers)
    arena = Arena.create(recipe.fields(1, workers))
    undo.callback(arena.close)
    loops = ProcessRuntime(partial(BareLoop, recipe), arena, recipe.shape.groups, workers, preload=PRELOAD)
    undo.callback(loops.close)
    return loops

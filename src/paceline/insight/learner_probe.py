"""Learning alone, by several settings in turns: one crew of workers without envs, and one batch for all of them.

    training: a rollout, weights ──copied──► arena of the probe ──► setting in turn: learner ──► shards ──► crew

The workers, the driver's own hand and the learner are those of a real training. The learning rate is too small to
move a weight, so that every update does the same work.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np
import psutil

from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import PPOGradient, ShardedGradient, ShardedUpdate
from paceline.algos.targets import GAETargets
from paceline.insight.learner_settings import TURN_S, LearnerSetting, LearnerSpeeds, alternatives, turn_size
from paceline.insight.windows import window
from paceline.measure.clock import Clock
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena, Field
from paceline.memory.slot_copies import copy_rollout
from paceline.ops.adam import FlatAdam
from paceline.runtime.inline import InlineRuntime
from paceline.runtime.process import ProcessRuntime
from paceline.runtime.protocol import Runtime, Share
from paceline.system import threads
from paceline.train.algorithms.ppo import PPOPlan, ppo_plan
from paceline.train.algorithms.surrogate import surrogate_gradient
from paceline.train.start_up import PRELOAD
from paceline.train.training import Training

STANDSTILL = 1e-12
"""A learning rate."""
LOOK_S = 0.3
"""How long to look at what other programs take."""
PASSES = 3
"""Pieces of a setting's window."""


def nothing_to_try(training: Training) -> str | None:
    """Why learning alone would say nothing about this training; None where it does."""
    plan = ppo_plan(training.plan)
    if plan is None:
        return f"{training.config.run.algo} has no gradients that workers share"
    if plan.settings.pipeline:
        return "in a pipeline envs are stepped while it learns, and learning alone is another thing"
    if training.config.parallel.runtime == "ray":
        return "on a cluster the driver computes gradients alone"
    if training.device.type != "cpu":
        return f"a learner on {training.device.type} computes minibatches whole"
    return None


@dataclass(frozen=True, slots=True)
class GradOnly:
    """A worker's program that only computes gradients, by whichever setting has its turn."""

    plan: PPOPlan
    settings: tuple[LearnerSetting, ...]

    def fields(self, weights: int, workers: int) -> list[Field]:
        """What the probe's arena holds."""
        return [*self.plan.fields(weights, workers), Field.of("turn", (1,), np.int64)]

    def __call__(self, arena: Arena, share: Share) -> GradOnlyJob:  # noqa: ARG002 - any worker computes any shard
        """Build the networks inside the worker."""
        plan = self.plan
        gradients = {
            count: surrogate_gradient(plan.base, replace(plan.settings, learner_threads=count), arena.__getitem__)
            for count in {setting.learner_threads for setting in self.settings}
        }
        return GradOnlyJob(self, arena, gradients)


class GradOnlyJob:
    """The role GRAD, and no envs."""

    def __init__(self, program: GradOnly, arena: Arena, gradients: dict[int, PPOGradient]) -> None:
        slots, self._turn = program.plan.slots(arena), arena["turn"]
        self._sharded = [
            ShardedGradient(gradients[setting.learner_threads], slots, Shards(arena, setting.grad_shards))
            for setting in program.settings
        ]

    def work(self, shard: int) -> None:
        """One shard of a minibatch."""
        self._sharded[self._turn[0]](shard)

    def close(self) -> None:
        """There is nothing to close."""


class LearnerProbe:
    """Measures the settings of a training's learner beside it. Owns workers and memory: close it.

    Args:
        training: Has collected a rollout; `nothing_to_try` has found nothing. It is only read.
    """

    def __init__(self, training: Training) -> None:
        real, workers = ppo_plan(training.plan), training.runtime.num_workers
        if real is None:
            raise TypeError(f"{training.config.run.algo}: nothing_to_try says why")
        config = real.settings
        weights, rows = len(training.weights.vector), training.config.shard_rows(1)
        cores = threads.core_budget()
        current = LearnerSetting(real.shards, config.learner_threads)
        hands = min(cores, workers + 1)
        self.settings = alternatives(current, rows=rows, weights=weights, hands=hands, cores=cores)
        most = max(setting.grad_shards for setting in self.settings)
        still = replace(config, learning_rate=STANDSTILL)
        base = replace(real.base, central=None, league=None)
        program = GradOnly(PPOPlan(base=base, settings=still, shards=most), self.settings)
        self._others_share = psutil.cpu_percent(interval=LOOK_S) / 100  # the training rests
        with ExitStack() as undo:
            arena = Arena.create(program.fields(weights, workers))
            undo.callback(arena.close)
            for name in base.acting_names():
                arena[name][...] = training.arena[name]
            slots = program.plan.slots(arena)
            copy_rollout(real.slots(training.arena), into=slots)
            self._batch, self._turn, self._valid = slots.trajectory(0), arena["turn"], slots.array("valid").reshape(-1)
            runtime = _crew(program, arena, workers, training)
            undo.callback(runtime.close)
            self._rates: list[list[float]] = [[] for _ in self.settings]
            self._shorten(program, arena, runtime, rows)
            self.close = undo.pop_all().close

    def _shorten(self, program: GradOnly, arena: Arena, runtime: Runtime[GradOnlyJob], rows: int) -> None:
        """Have a turn learn from as much of the rollout as is learned from in a moment."""
        valid, n_epochs = np.flatnonzero(self._valid), program.plan.settings.n_epochs

        def turns_of(epochs: int, minibatches: int) -> None:
            self._valid[valid[minibatches * rows :]] = False
            plan = program.plan
            short = replace(plan, settings=replace(plan.settings, n_epochs=epochs))
            self._learners = [_learner(short, setting, arena, runtime) for setting in self.settings]

        turns_of(1, 1)
        for number in range(len(self.settings)):
            self._update(number)  # loads kernels, touches every page
        seconds = 1.0 / window(partial(self._update, 0), TURN_S)
        self._valid[valid] = True
        turns_of(*turn_size(seconds, -(-len(valid) // rows), n_epochs))

    def round(self, window_s: float) -> None:
        """A window of each setting, all together about so long: in short pieces, so that noise hits all alike."""
        began, each_s = perf_counter(), window_s / (PASSES * len(self.settings))
        passes: list[list[float]] = []
        while not passes or (len(passes) < PASSES and perf_counter() - began < window_s):
            passes.append([self._piece(number, each_s) for number in range(len(self.settings))])
        for rates, rate in zip(self._rates, np.mean(passes, axis=0), strict=True):
            rates.append(float(rate))

    def _piece(self, number: int, seconds: float) -> float:
        """Updates per second of one setting."""
        self._update(number)  # wakes everybody: the first after another setting is slower
        return window(partial(self._update, number), seconds)

    def speeds(self) -> LearnerSpeeds:
        """What was measured so far."""
        return LearnerSpeeds(dict(zip(self.settings, map(tuple, self._rates), strict=True)), self._others_share)

    def _update(self, number: int) -> int:
        """Learn from the batch; returns the updates."""
        self._turn[0], learner = number, self._learners[number]
        before = learner.n_updates
        learner.update(self._batch, 0.0)
        return learner.n_updates - before


def _crew(program: GradOnly, arena: Arena, workers: int, training: Training) -> Runtime[GradOnlyJob]:
    groups, env = program.plan.base.shape.groups, training.config.env
    if workers == 0:
        return InlineRuntime(program, arena, groups)
    return ProcessRuntime(
        program,
        arena,
        groups,
        workers,
        start_method=training.config.parallel.start_method,
        preload=PRELOAD,
        take_turns=program.plan.alternates,
        start_timeout_s=env.start_timeout_s,
        step_timeout_s=env.env_timeout_s,
        local_gradient=program(arena, Share(0, 0, groups)).work,
    )


def _learner(plan: PPOPlan, setting: LearnerSetting, arena: Arena, runtime: Runtime[GradOnlyJob]) -> PPOLearner:
    weights = plan.weights(arena)
    vector = weights.vector.clone() if runtime.num_workers else weights.vector  # as in a training
    return PPOLearner(
        vector,
        weights,
        ShardedUpdate(runtime.work, Shards(arena, setting.grad_shards), weights.showing(vector)),
        Shards(arena),
        GAETargets(plan.settings.gamma, plan.settings.gae_lambda),
        FlatAdam(vector),
        plan.settings,
        seed=plan.base.seed,
        clock=Clock(),
    )

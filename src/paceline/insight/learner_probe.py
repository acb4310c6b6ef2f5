"""Times the learner of a training without its envs, with several settings in turn on one batch.

    training: a rollout, weights ──copied──► arena of the probe ──► learner of each setting ──► shards ──► workers

Workers, the driver's local gradient and the learner are the same classes as in training. The learning rate is so small
that the weights hardly change and every update does the same work.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from paceline.algos.ppo import PPOLearner
from paceline.algos.ppo_gradient import PPOGradient, ShardedGradient, ShardedUpdate
from paceline.algos.targets import GAETargets
from paceline.insight.learner_settings import TURN_S, LearnerSetting, LearnerSpeeds, alternatives, turn_size
from paceline.insight.windows import window
from paceline.measure.clock import Clock
from paceline.measure.machine import SystemSampler
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

NO_LEARNING_RATE = 1e-12
"""A learning rate at which weights hardly change, so that every update does the same work."""
PASSES = 3
"""Pieces into which the window of each setting is split."""


def nothing_to_try(training: Training) -> str | None:
    """The reason why the probe cannot measure this training, for an error text; None if it can."""
    plan = ppo_plan(training.plan)
    if plan is None:
        return f"workers of {training.config.run.algo} do not compute shards of the learner's gradient"
    if plan.settings.pipeline:
        return "with pipeline, workers step envs during learning, so the speed of learning alone does not apply"
    if training.config.parallel.runtime == "ray":
        return "with runtime=ray, the driver computes all gradients itself"
    if training.device.type != "cpu":
        return f"a learner on {training.device.type} does not split minibatches"
    return None


@dataclass(frozen=True, slots=True)
class GradOnly:
    """Worker program that has no envs and computes gradients with the setting that the arena field `turn` selects."""

    plan: PPOPlan
    settings: tuple[LearnerSetting, ...]

    def fields(self, weights: int, workers: int) -> list[Field]:
        """Fields of the probe's arena."""
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
    """Computes shards of gradients inside a worker."""

    def __init__(self, program: GradOnly, arena: Arena, gradients: dict[int, PPOGradient]) -> None:
        slots, self._turn = program.plan.slots(arena), arena["turn"]
        self._sharded = [
            ShardedGradient(gradients[setting.learner_threads], slots, Shards(arena, setting.grad_shards))
            for setting in program.settings
        ]

    def work(self, shard: int) -> None:
        """Compute the gradient of one shard of the current minibatch."""
        self._sharded[self._turn[0]](shard)

    def close(self) -> None:
        """There is nothing to close."""


class LearnerProbe:
    """Measures settings of the learner of a training. Owns worker processes and shared memory: call `close`.

    Args:
        training: A training that has collected a rollout and for which `nothing_to_try` returns None. Not modified.
    """

    def __init__(self, training: Training) -> None:
        real, workers = ppo_plan(training.plan), training.runtime.num_workers
        if real is None:
            raise TypeError(f"{training.config.run.algo}: must be ppo, call nothing_to_try first")
        config = real.settings
        weights, rows = len(training.weights.vector), training.config.shard_rows(1)
        cores = threads.core_budget()
        current = LearnerSetting(real.shards, config.learner_threads)
        processes = min(cores, workers + 1)
        self.settings = alternatives(current, rows=rows, weights=weights, processes=processes, cores=cores)
        most = max(setting.grad_shards for setting in self.settings)
        frozen = replace(config, learning_rate=NO_LEARNING_RATE)
        base = replace(real.base, central=None, league=None)
        program = GradOnly(PPOPlan(base=base, settings=frozen, shards=most), self.settings)
        self._system = SystemSampler()
        with ExitStack() as undo:
            arena = Arena.create(program.fields(weights, workers))
            undo.callback(arena.close)
            for name in base.acting_names():
                arena[name][...] = training.arena[name]
            slots = program.plan.slots(arena)
            copy_rollout(real.slots(training.arena), into=slots)
            self._batch, self._turn, self._valid = slots.trajectory(0), arena["turn"], slots.arrays["valid"].reshape(-1)
            runtime = _start_workers(program, arena, workers, training)
            undo.callback(runtime.close)
            self._rates: list[list[float]] = [[] for _ in self.settings]
            self._make_learners(program, arena, runtime, rows)
            self.close = undo.pop_all().close

    def _make_learners(self, program: GradOnly, arena: Arena, runtime: Runtime[GradOnlyJob], rows: int) -> None:
        """Build the learner of each setting, with so few epochs and minibatches that an update takes about TURN_S."""
        valid, n_epochs = np.flatnonzero(self._valid), program.plan.settings.n_epochs

        def turns_of(epochs: int, minibatches: int) -> None:
            self._valid[valid[minibatches * rows :]] = False
            plan = program.plan
            short = replace(plan, settings=replace(plan.settings, n_epochs=epochs))
            self._learners = [_learner(short, setting, arena, runtime) for setting in self.settings]

        turns_of(1, 1)
        for number in range(len(self.settings)):
            self._update(number)  # warm-up: loads kernels, touches every page
        seconds = 1.0 / window(partial(self._update, 0), TURN_S)
        self._valid[valid] = True
        turns_of(*turn_size(seconds, -(-len(valid) // rows), n_epochs))

    def round(self, window_s: float) -> None:
        """Measure each setting once, in `window_s` seconds for all settings together.

        The settings alternate in short pieces, so that noise from other programs affects all alike.
        """
        began, each_s = perf_counter(), window_s / (PASSES * len(self.settings))
        passes: list[list[float]] = []
        while not passes or (len(passes) < PASSES and perf_counter() - began < window_s):
            passes.append([self._piece(number, each_s) for number in range(len(self.settings))])
        for rates, rate in zip(self._rates, np.mean(passes, axis=0), strict=True):
            rates.append(float(rate))

    def _piece(self, number: int, seconds: float) -> float:
        """Updates per second of one setting."""
        self._update(number)  # warm-up: the first update after a change of the setting is slower
        return window(partial(self._update, number), seconds)

    def speeds(self) -> LearnerSpeeds:
        """The speeds of all rounds so far, and the CPU time that others took meanwhile."""
        self._system.sample(force=True)
        return LearnerSpeeds(dict(zip(self.settings, map(tuple, self._rates), strict=True)), self._system.supply())

    def _update(self, number: int) -> int:
        """Learn from the batch with one setting; returns the number of gradient updates."""
        self._turn[0], learner = number, self._learners[number]
        before = learner.n_updates
        learner.update(self._batch, 0.0)
        return learner.n_updates - before


def _start_workers(program: GradOnly, arena: Arena, workers: int, training: Training) -> Runtime[GradOnlyJob]:
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

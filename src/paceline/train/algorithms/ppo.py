"""PPO: synchronous rollouts; the workers also compute the gradients of each minibatch.

    rollout: workers collect, each its own columns           driver waits
    update:  workers compute shards of minibatch gradients   driver computes shards, adds them up, steps Adam

With `pipeline`, workers collect the next rollout while the driver learns from a copy of the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.algos.targets import GAETargets
from paceline.config.ppo_settings import PPOConfig
from paceline.config.train_config import TrainConfig
from paceline.memory.shards import Shards
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.slots import Slots
from paceline.runtime.ray.transfer import GroupRange
from paceline.train.algorithms.surrogate import gradient_of, gradients_for, surrogate_learner
from paceline.train.layout import Layout
from paceline.train.league import in_league
from paceline.train.loop import Driver
from paceline.train.plan import Algorithm, AnyDriver, DriverParts
from paceline.train.rollout_job import RolloutJob
from paceline.train.rollout_plan import RolloutPlan
from paceline.train.worker_recipe import WorkerRecipe

LEARNING, ACTING = "learning/", "acting/"
"""Prefixes, in a pipeline, of the copy of the rollout for the learner and of the copy of the weights for acting."""


@dataclass(frozen=True, kw_only=True)
class PPOPlan(RolloutPlan):
    """The plan of PPO. See `Plan`."""

    settings: PPOConfig
    shards: int
    """Shards of a minibatch's gradient."""

    @property
    def alternates(self) -> bool:
        """See `Plan.alternates`."""
        return not self.settings.pipeline

    @property
    def shares_gradients(self) -> bool:
        """See `Plan.shares_gradients`."""
        return True

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""
        shape = self.base.shape
        shards = Shards.fields(shape.n_steps * shape.n_envs, self.shards, weights)
        fields = [*super().fields(weights, workers), *shards]
        if self.settings.pipeline:
            acting = [replace(field, name=ACTING + field.name) for field in self.base.acting_fields(weights)]
            fields += [*shape.fields(LEARNING), *acting]
        return fields

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], int]]:
        """See `Plan.acting`."""
        arrays, update = super().acting(arena)
        return (lambda name: arena[ACTING + name]) if self.settings.pipeline else arrays, update

    def slots(self, arena: Arena) -> Slots:
        """Return the slots in which the learner reads a rollout."""
        return Slots(arena, self.base.shape, LEARNING if self.settings.pipeline else "")

    def local_gradient(self, arena: Arena) -> ShardedGradient:
        """See `Plan.local_gradient`."""
        return gradient_of(self.base, self.settings, arena, self.slots(arena))

    def on_node(self, held: GroupRange) -> Self:
        """Return the plan for a node of a cluster, which collects and does not learn."""
        return replace(super().on_node(held), settings=replace(self.settings, pipeline=False), shards=1)

    def identity(self) -> Mapping[str, object]:
        """See `Plan.identity`."""
        return {"pipeline": self.settings.pipeline}

    def driver(self, parts: DriverParts[RolloutJob]) -> AnyDriver:
        """See `Plan.driver`."""
        settings, arena, pipeline = self.settings, parts.arena, self.settings.pipeline

        def freeze() -> None:
            """Copy weights and observation statistics: the learner changes the originals while workers collect."""
            for name in self.base.acting_names():
                arena[ACTING + name][...] = arena[name]
            if parts.league is not None:
                parts.league.update(epsilon=0.0)

        collector = self.rollouts(
            parts, learning=self.slots(arena) if pipeline else None, freeze=freeze if pipeline else None
        )
        gradients = gradients_for(parts, self.base, settings, self.slots(arena), parts.runtime.work)
        targets = GAETargets(settings.gamma, settings.gae_lambda)
        learner = surrogate_learner(parts, self.base.shape.spec, settings, gradients, targets)
        return Driver(collector, in_league(learner, parts.league, updates_league=not pipeline))


def _plan(config: TrainConfig, base: WorkerRecipe, layout: Layout) -> PPOPlan:  # noqa: ARG001 - see `Algorithm.plan`
    settings = config.training
    if not isinstance(settings, PPOConfig):
        raise TypeError(f"ppo: expected PPOConfig, got {type(settings).__name__}")
    return PPOPlan(base=base, settings=settings, shards=config.grad_shards(image=base.shape.spec.has_image))


def ppo_plan(plan: object) -> PPOPlan | None:
    """Return the plan if it is that of PPO, else None: for benchmarks of the gradients that workers compute."""
    return plan if isinstance(plan, PPOPlan) else None


PPO = Algorithm(_plan)

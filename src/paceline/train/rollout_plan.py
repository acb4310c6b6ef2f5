"""Base class for the plans of synchronous algorithms that learn from rollouts.

A new algorithm derives from `RolloutPlan` and implements `driver`, which combines `rollouts(parts)` with its own
learner; docs/how-to/add-an-algorithm.md has an example. In PPO, workers also compute gradients (algorithms/ppo.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from paceline.algos.ppo_gradient import ShardedGradient
from paceline.collect.history import EpisodeHistory
from paceline.envs.extras import TAG
from paceline.memory.shared import Arena, ArraysByName, Field
from paceline.memory.slots import Slots
from paceline.memory.weights import Weights
from paceline.runtime.protocol import Share
from paceline.runtime.ray.transfer import GroupRange, Transfer
from paceline.train.plan import AnyDriver, DriverParts
from paceline.train.recipes import restarts_for
from paceline.train.rollout_job import RolloutJob
from paceline.train.rollout_transfer import RolloutTransfer
from paceline.train.rollouts import Rollouts
from paceline.train.worker_recipe import WorkerRecipe


@dataclass(frozen=True, kw_only=True)
class RolloutPlan(ABC):
    """A plan whose workers collect one rollout at a time with the newest weights, directly into shared memory."""

    base: WorkerRecipe

    @property
    def alternates(self) -> bool:
        """See `Plan.alternates`."""
        return True

    @property
    def shares_gradients(self) -> bool:
        """See `Plan.shares_gradients`."""
        return False

    def fields(self, weights: int, workers: int) -> list[Field]:
        """See `Plan.fields`."""
        return self.base.fields(weights, workers)

    def weights(self, arena: Arena) -> Weights:
        """See `Plan.weights`."""
        return Weights(arena)

    def acting(self, arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
        """See `Plan.acting`. The weights do not change while workers collect, so workers read the published ones."""
        return in_place(arena)

    def local_gradient(self, arena: Arena) -> ShardedGradient | None:  # noqa: ARG002 - PPO overrides this
        """See `Plan.local_gradient`."""
        return None

    def on_node(self, held: GroupRange) -> RolloutPlan:
        """Return the same plan for the groups of one node of a cluster."""
        shape = replace(self.base.shape, first_group=held.first_group, groups=held.groups)
        return replace(self, base=replace(self.base, shape=shape))

    def transfer(self, weights: int) -> Transfer[RolloutJob]:
        """See `Plan.transfer`."""
        return RolloutTransfer(self, weights)

    def stats(self) -> tuple[str, ...]:
        """See `Plan.stats`."""
        return ()

    def identity(self) -> Mapping[str, object]:
        """See `Plan.identity`."""
        return {}

    def __call__(self, arena: Arena, share: Share) -> RolloutJob:
        """Build the envs and the policy. Runs inside the worker."""
        return RolloutJob(self.base.collector(arena, share, [Slots(arena, self.base.shape)], self.acting(arena)[0]))

    @abstractmethod
    def driver(self, parts: DriverParts[RolloutJob]) -> AnyDriver:
        """See `Plan.driver`."""

    def rollouts(
        self, parts: DriverParts[RolloutJob], *, learning: Slots | None = None, freeze: Callable[[], None] | None = None
    ) -> Rollouts:
        """Build the collector, which collects one rollout of all groups at a time.

        Args:
            parts: The objects that the driver has built.
            learning: In a pipeline, slots for a copy of the rollout, from which the learner reads.
            freeze: In a pipeline, copies the newest weights for the workers, which use the copy until the next call.
        """
        arena, spec = parts.arena, self.base.shape.spec
        slots = Slots(arena, self.base.shape)
        # Extras that are read once per episode are not read again in a replay, so the history keeps their values.
        per_episode = {
            TAG + name: extra[-1] for name, extra in slots.extras().items() if spec.extras[name].every == "episode"
        }
        return Rollouts(
            parts.runtime,
            slots,
            parts.tracker,
            EpisodeHistory(spec, arena["episode"], slots.shown, {**self.base.tags(arena), **per_episode}),
            parts.clock,
            reward_norm=parts.reward_norm,
            learning=learning,
            freeze=freeze,
            trust_env_state=parts.config.run.trust_env_state,
            restarts=restarts_for(parts.config, parts.runtime),
        )


def in_place(arena: Arena) -> tuple[ArraysByName, Callable[[], object]]:
    """Return views of the published weights and statistics, and an update function that does nothing."""
    return arena.__getitem__, _nothing


def _nothing() -> None:
    pass
